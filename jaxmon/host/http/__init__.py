"""
HTTP: one small server for pages, one bounded client.

`server` listens (`listeners`) and responds to one request per connection, on its own
event loop (`sockets`). `connections` decides which clients are served and which are
dropped; each speaks by its transport. `messages` reads requests, writes responses,
`routes` finds the handler, and `page` is the metrics endpoint.

`client` makes one exchange over a `stream` that has a deadline and a size, `route` does
so through TLS and proxies, and `fetch` reads many sockets concurrently. `urls` are
validated before anything is sent, and `redaction` hides echoed passwords.
"""
