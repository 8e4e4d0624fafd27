"""
``jaxmon demo``: what it starts, what it breaks, and how it shows what comes of it.

`command` starts `children`, among them the `stack` of Prometheus and Alertmanager, and
lets `faults` happen. It reads `pages` and `alerts`, and shows them on a `screen`, or as
`lines`.
"""
