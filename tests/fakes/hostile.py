"""
Servers that answer without end, on TCP or a Unix socket: floods and drips, each in
another part of an HTTP answer.
"""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path


_OK = b"HTTP/1.1 200 OK\r\n"
_JSON = _OK + b"Content-Type: application/json\r\n"
_CHUNKED = _JSON + b"Transfer-Encoding: chunked\r\n\r\n"
_BLOCK = b"x" * (1 << 16)


@dataclass(frozen=True)
class Answer:
    """
    What is sent once, and what is sent from then on, for ever.

    Args:
        pause: seconds between two pieces of the latter.
    """

    first: bytes
    rest: bytes
    pause: float = 0.0


ENDLESS = {
    "silence": Answer(b"", b""),
    "continue": Answer(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "early hints": Answer(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
    "a status line": Answer(b"HTTP/1.1 ", b"2", 0.01),
    "headers that drip": Answer(_OK, b"X: y\r\n", 0.01),
    "one header": Answer(_OK + b"X: ", _BLOCK),
    "headers of 100 Continue": Answer(b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n", 0.01),
    "a body": Answer(_JSON + b"\r\n", _BLOCK),
    "a body that drips": Answer(_JSON + b"\r\n", b" ", 0.01),
    "a body of any length": Answer(
        _JSON + b"Content-Length: 99999999999999999\r\n\r\n", b" ", 0.01
    ),
    "chunks": Answer(_CHUNKED, b"10000\r\n" + _BLOCK + b"\r\n"),
    "a chunk of any size": Answer(_CHUNKED + b"f" * 4000 + b"\r\n", _BLOCK),
    "a chunk of less than nothing": Answer(_CHUNKED + b"-5\r\n", _BLOCK),
    "trailers": Answer(_CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 1000),
    "trailers that drip": Answer(_CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n", 0.01),
}
"""Answers that never end, by the part that does not."""


@dataclass
class Hostile:
    """
    Answers each connection with *answer*, until the client hangs up.

    Args:
        greeting: sent to each client before it says anything.
        sent: bytes of answers, of all connections.
        clients: connections.
    """

    listener: socket.socket
    answer: Answer
    greeting: bytes = b""
    tls: ssl.SSLContext | None = None
    sent: int = 0
    clients: int = 0

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.listener.getsockname()[1]}"

    def stop(self) -> None:
        self._over.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self._threads:
            thread.join(30)

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            client.settimeout(1)
            # What is under way depends on the client alone, not on how busy we are.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            self.clients += 1
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                client.sendall(self.greeting)
                if self.tls is not None:
                    client = self.tls.wrap_socket(client, server_side=True)
                client.recv(1 << 16)
                for piece in chain([self.answer.first], repeat(self.answer.rest)):
                    self._send(client, piece)
                    if self._over.wait(self.answer.pause or (0 if piece else 0.05)):
                        return
            except OSError:
                return
            finally:
                client.close()

    def _send(self, client: socket.socket, piece: bytes) -> None:
        if not piece:  # silence: only see whether the client is still there
            client.settimeout(0.01)
            try:
                if not client.recv(1):
                    raise ConnectionResetError
            except TimeoutError:
                pass
        while piece:
            try:
                count = client.send(piece)
            except TimeoutError:
                if self._over.is_set():
                    raise
                continue
            self.sent += count
            piece = piece[count:]


@contextmanager
def hostile(
    answer: Answer,
    *,
    path: Path | None = None,
    greeting: bytes = b"",
    tls: ssl.SSLContext | None = None,
) -> Iterator[Hostile]:
    """Give a server that answers so, on a free port or the Unix socket *path*."""
    listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    listener.bind(str(path) if path else ("127.0.0.1", 0))
    listener.listen()
    server = Hostile(listener, answer, greeting, tls)
    try:
        yield server
    finally:
        server.stop()
