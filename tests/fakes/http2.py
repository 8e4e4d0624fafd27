"""A server of HTTP/2 that does what a test tells it to, on a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, StreamEnded
from h2.settings import SettingCodes, Settings


Headers = list[tuple[str, str]]
OK: Headers = [(":status", "200"), ("content-type", "application/grpc")]
DONE: Headers = [("grpc-status", "0")]


def message(payload: bytes, *, flag: bytes = b"\0", length: int | None = None) -> bytes:
    """Return *payload* as gRPC frames it."""
    told = len(payload) if length is None else length
    return flag + told.to_bytes(4, "big") + payload


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.http = H2Connection(H2Configuration(client_side=False))

    def reply(self, stream: int, payload: bytes) -> None:
        """Answer as a server of gRPC does."""
        self.http.send_headers(stream, OK)
        self.http.send_data(stream, message(payload))
        self.http.send_headers(stream, DONE, end_stream=True)

    def flush(self) -> None:
        self.sock.sendall(self.http.data_to_send())


class Server:
    """
    Listens for the length of a ``with`` block.

    Args:
        act: called with each event of each connection, and its end.
        most: streams that it takes at a time.
        greet: whether it begins with its settings, as it should.
        family: of its socket.
        address: where.
    """

    def __init__(
        self,
        act: Callable[[Peer, Event], None],
        *,
        most: int | None = None,
        greet: bool = True,
        family: socket.AddressFamily = socket.AF_INET,
        address: Any = ("127.0.0.1", 0),
    ) -> None:
        self._act = act
        self._most = most
        self._greet = greet
        self._sock = socket.socket(family)
        self._sock.bind(address)
        self._sock.listen(16)
        self._threads = [threading.Thread(target=self._accept)]
        self._ends: list[socket.socket] = []
        self.errors: list[BaseException] = []
        self.connections = 0

    @property
    def target(self) -> Any:
        return self._sock.getsockname()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._sock, *self._ends):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(90)
        for sock in (self._sock, *self._ends):
            sock.close()
        assert not self.errors, self.errors

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            self.connections += 1
            self._ends.append(sock)
            thread = threading.Thread(target=self._serve, args=(Peer(sock),))
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: Peer) -> None:
        try:
            if self._greet:
                if self._most is not None:
                    told = {SettingCodes.MAX_CONCURRENT_STREAMS: self._most}
                    peer.http.local_settings = Settings(
                        client=False, initial_values=told
                    )
                peer.http.initiate_connection()
                peer.flush()
            while data := peer.sock.recv(65536):
                for event in peer.http.receive_data(data):
                    self._act(peer, event)
                peer.flush()
        except OSError:  # it hung up, which it may
            pass
        except BaseException as error:  # noqa: BLE001 - a failed test, told at the end
            self.errors.append(error)


def on_request(act: Callable[[Peer, int], None]) -> Callable[[Peer, Event], None]:
    """Return what calls *act* with each complete request."""

    def handle(peer: Peer, event: Event) -> None:
        if isinstance(event, StreamEnded):
            act(peer, event.stream_id)

    return handle
