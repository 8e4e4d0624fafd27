"""A small forward proxy: CONNECT and absolute http addresses, all to one server."""

import select
import socket
import threading
from contextlib import suppress
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, Self
from urllib.parse import urlsplit


class Proxy:
    """
    A proxy for the length of a ``with`` block.

    Args:
        port: of the server on this host that every name leads to.
        refuse: the status line with which to refuse, instead.
    """

    def __init__(self, port: int, *, refuse: str = "") -> None:
        self.heads: list[str] = []
        self._server = _Server(("127.0.0.1", 0), _handler(self.heads, port, refuse))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingTCPServer):
    daemon_threads = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


def _handler(heads: list[str], port: int, refuse: str) -> type[StreamRequestHandler]:
    class Handler(StreamRequestHandler):
        timeout = 20
        rbufsize = 0  # what follows the head stays in the socket

        def handle(self) -> None:
            lines = []
            while (line := self.rfile.readline()).strip():
                lines.append(line.decode())
            heads.append("".join(lines))
            if refuse:
                self.wfile.write(f"HTTP/1.1 {refuse}\r\n\r\n".encode())
                return
            method, target, _ = lines[0].split()
            with socket.create_connection(("127.0.0.1", port), 10) as upstream:
                if method == "CONNECT":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    parts = urlsplit(target)
                    path = parts.path + (f"?{parts.query}" if parts.query else "")
                    first = f"{method} {path} HTTP/1.1\r\n"
                    upstream.sendall("".join([first, *lines[1:], "\r\n"]).encode())
                with suppress(OSError):
                    _pump(self.connection, upstream)

    return Handler


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until either side closes."""
    while ready := select.select([one, other], [], [], 20)[0]:
        for end in ready:
            data = end.recv(1 << 16)
            if not data:
                return
            (other if end is one else one).sendall(data)
