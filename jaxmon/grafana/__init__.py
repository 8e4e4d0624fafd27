"""Grafana: what it has, what it should have, and how the one becomes the other."""
