"""Dashboards: `boards` makes them of the catalogue, `grafana` sends them."""
