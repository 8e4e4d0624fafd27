"""
A client for unary gRPC calls: many at once, on one thread, under one deadline.

`call` is one of them and what came of it, `session` the HTTP/2 of a connection, `ask`
the sockets. h2 does HTTP/2, and is loaded once somebody listens; gRPC on top of it is
a few headers and a length.
"""
