"""
HTTP: one small server for pages, one bounded client.

`server` responds to one request per connection, on its own event loop (`sockets`).
`connections` decides who is served; `messages` reads and writes, `routes` finds
handlers.

`client` makes one exchange over a `stream` that has a deadline and a size, also by
TLS and proxies, and `fetch` reads many sockets concurrently. `urls` are validated
before anything is sent; echoed passwords are hidden.
"""
