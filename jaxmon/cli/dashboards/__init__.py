"""``jaxmon dashboards``: the `command`, and its report of what was `pushed`."""
