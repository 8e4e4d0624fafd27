"""
``jaxmon dashboards``: the `command`, its `connection` to Grafana, and its report of
what was `pushed`.
"""
