"""
From metric families to bytes on a socket, and back.

`families` is the data, `histogram` and `process` make some, `encode` writes the
two text formats, `parse` reads one of them. `server` is the HTTP server: what it
listens on (`listeners`), its clients (`connection`) and who of them is served
(`places`), their requests and responses (`messages`), and the page that Prometheus
scrapes (`page`).
"""
