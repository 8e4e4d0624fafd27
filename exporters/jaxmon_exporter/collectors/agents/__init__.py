"""
The agents of this host, read over their sockets: `collector` fetches and adds up,
`page` validates and labels the metrics of each.
"""
