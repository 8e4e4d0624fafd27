"""The dashboards, one module each: which rows it has, and for whom."""
