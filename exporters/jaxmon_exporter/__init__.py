"""
The sidecar: one metrics page for a host, its JAX processes and its accelerators.

`service` puts it together: `collectors` read, `polling` keeps what they read,
`summary` and `pages` show it. It never imports JAX.
"""
