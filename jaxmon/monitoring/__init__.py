"""Clients of the servers that a site monitors with: Prometheus, Alertmanager."""
