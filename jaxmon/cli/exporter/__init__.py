"""``jaxmon exporter``: the `command`, and the `signals` that stop and reload it."""
