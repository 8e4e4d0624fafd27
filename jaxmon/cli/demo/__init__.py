"""
``jaxmon demo``: what it starts, what it breaks, and how it shows the effects.

`command` starts `children`, among them the `stack` of Prometheus and Alertmanager, and
injects `faults`. It reads `pages` and `alerts`, and shows them on a `screen`, or as
`lines`.
"""
