"""Dashboards in Grafana's v2 model, carried over from the classic one."""
