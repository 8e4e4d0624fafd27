"""
From metric families to bytes on a socket.

`families` is the data, `encode` the two text formats, `parse` the way back,
`server` the HTTP server on TCP and Unix sockets.
"""
