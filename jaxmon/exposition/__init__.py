"""
From metric families to bytes on a socket, and back.

`families` is the data, `histogram` and `process` make some, `encode` writes the
two text formats, `parse` reads one of them. `server` is the HTTP server: what it
listens on (`listeners`), its clients (`connection`) and who of them is served
(`places`) or waits (`lobby`), their requests and responses (`messages`), the page that
Prometheus scrapes (`page`), all of it on one event loop (`loop`).
"""
