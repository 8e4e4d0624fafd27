"""Access to the sidecar: TLS and passwords."""
