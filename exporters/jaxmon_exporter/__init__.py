"""
The sidecar: one metrics endpoint for a host, its JAX processes and its accelerators.

`service` assembles it: `collectors` read, `polling` keeps the latest values, `pages`
present them. It never imports JAX.
"""
