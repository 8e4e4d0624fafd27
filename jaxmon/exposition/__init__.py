"""
Metric families, and their text formats.

`families` is the data, `encode` writes Prometheus's two text
formats, `parse` reads one of them, and `plausible` drops implausible values.
"""
