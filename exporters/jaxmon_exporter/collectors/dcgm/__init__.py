"""
The page of a dcgm-exporter on this host, for what we cannot read ourselves.

`collector` has the page from `fetch`, its lines from `page`, and what they are called
here from `fields`. What joins the sidecar's own figures is decided in
`jaxmon_exporter.precedence`.
"""
