"""
The metrics of a dcgm-exporter on this host, for values that we cannot read ourselves.

`collector` fetches them with `fetch`, parses lines with `page`, and maps names with
`fields`. `jaxmon_exporter.precedence` decides which of them are exported.
"""
