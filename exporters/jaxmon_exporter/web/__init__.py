"""Who may read the sidecar's pages: TLS and passwords."""
