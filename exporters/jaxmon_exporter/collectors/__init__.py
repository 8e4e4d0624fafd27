"""
The sidecar's data sources: one module or package for each, in which `collector` is the
class that is polled. Start in `registry`, which lists them, with the options of each.
`jaxmon_exporter.polling` defines what a collector is, and calls it.
"""
