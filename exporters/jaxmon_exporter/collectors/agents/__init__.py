"""
The agents of this host, read over their sockets.

`collector` fetches the page of each, `page` decides what of it can be believed and
labels it, `distributions` does that for histograms and summaries.
"""
