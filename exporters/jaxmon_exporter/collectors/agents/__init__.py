"""
The agents of this host, read over their sockets.

`collector` fetches the metrics of each, `page` validates and labels them, `ended` adds
what processes counted that have ended, `lives` says how they ended.
"""
