"""Receivers of OTLP over HTTP that never let go of a client, and count what it took."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count, repeat
from types import MappingProxyType
from typing import NamedTuple


_OK = b"HTTP/1.1 200 OK\r\n"
_BLOCK = bytes(1 << 16)
_CHUNK = b"10000\r\n" + _BLOCK + b"\r\n"


class Answer(NamedTuple):
    """What is sent, then again and again, and how often; no pause if 0."""

    first: bytes
    then: bytes
    pause: float = 0.0


ANSWERS = MappingProxyType(
    {
        "nothing": Answer(b"", b""),
        "head by bytes": Answer(_OK + b"X-Slow: ", b"x", 0.1),
        "body by bytes": Answer(_OK + b"Content-Length: 9999\r\n\r\n", b"x", 0.1),
        "endless interim": Answer(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        "endless head": Answer(_OK + b"X-Long: ", _BLOCK.replace(b"\0", b"x")),
        "endless body": Answer(_OK + b"\r\n", _BLOCK),
        "endless chunks": Answer(_OK + b"Transfer-Encoding: chunked\r\n\r\n", _CHUNK),
        "endless error": Answer(b"HTTP/1.1 400 Bad\r\n\r\n", _BLOCK),
        "endless redirect": Answer(
            b"HTTP/1.1 307 Elsewhere\r\nLocation: /again\r\n\r\n", _BLOCK
        ),
    }
)


class HostileReceiver:
    """
    Attributes:
        url: where it listens.
        sent: bytes that clients took, by connection.
    """

    def __init__(self, answer: Answer) -> None:
        self.sent: dict[int, int] = {}
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        # What the kernels keep is not what the client reads.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._over = threading.Event()
        self._begin(self._accept)

    def close(self) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _begin(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            for number in count():
                client, _ = self._listener.accept()
                self._begin(lambda c=client, n=number: self._serve(c, n))  # type: ignore[misc] # no such default

    def _serve(self, client: socket.socket, number: int) -> None:
        self.sent[number] = 0
        with client, suppress(OSError):
            while b"\r\n\r\n" not in client.recv(1 << 20, socket.MSG_PEEK):
                self._over.wait(0.01)
            first, then, pause = self._answer
            client.sendall(first)
            for piece in repeat(then):
                if self._over.wait(pause) if pause else self._over.is_set():
                    return
                if not piece:
                    self._over.wait()
                self.sent[number] += client.send(piece)


@contextmanager
def hostile_receiver(answer: str) -> Iterator[HostileReceiver]:
    """Run a receiver that sends one of `ANSWERS`."""
    receiver = HostileReceiver(ANSWERS[answer])
    try:
        yield receiver
    finally:
        receiver.close()
