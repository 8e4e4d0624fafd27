"""
Outages as on-call engineers meet them, each with a healthy twin, as promtool's series.

``python -m tests.alerts.outages`` prints what fires and what is sent in each.
"""
