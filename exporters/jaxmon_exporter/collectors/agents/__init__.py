"""
The agents of this host, read over their sockets.

`collector` fetches the metrics of each, `page` validates and labels them,
`distributions` does so for histograms and summaries.
"""
