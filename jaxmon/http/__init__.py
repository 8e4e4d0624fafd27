"""
HTTP: one small server for pages, one bounded client.

`server` listens (`listeners`) and answers one request per connection, on a `loop` of
its own. `connections` decides who is served and who gives way; each `connection` speaks
by its `transport`. `messages` reads requests and writes responses, `routes` finds the
page, and `page` is the one that Prometheus scrapes.

`client` makes one exchange over a `stream` that has a deadline and a size, `route` does
so by TLS and proxies, and `fetch` reads many sockets at once. `urls` are checked before
anything is sent, and `redaction` hides passwords that come back.
"""
