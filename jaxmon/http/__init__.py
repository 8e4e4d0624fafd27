"""
HTTP: one small server for pages, one bounded client.

`server` listens (`listeners`), serves its clients (`connection`) and decides who has a
place (`places`) or waits (`lobby`); `messages` reads requests and writes responses, and
`page` is the page that Prometheus scrapes. `client` makes one exchange over a `stream`
that has a deadline and a size, and `fetch` reads many sockets at once.
"""
