"""Draw the dashboards with Grafana's own components, without a Grafana."""
