"""Rows of panels, one module for each subject; dashboards choose among them."""
