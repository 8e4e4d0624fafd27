"""Grafana client: compare, plan and push dashboards."""
