"""
Many calls at once, under one deadline.

A connection lasts for the calls of one round: a server that hangs, or that went and
came back, leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Sequence
from errno import EAGAIN, EINPROGRESS
from typing import TYPE_CHECKING, Any

from jaxmon.http.stream import addresses
from jaxmon_exporter.grpc.call import (
    GONE,
    SLOW,
    Call,
    Failure,
    Pending,
    Reply,
    SessionError,
    Target,
)


if TYPE_CHECKING:
    from jaxmon_exporter.grpc.session import Session


_CHUNK = 1 << 16
# Answers to the server's own questions, such as pings, that it does not read.
_MOST_UNSENT = 1 << 16
# Of replies, which their own windows bound, and of all else.
_MOST_RECEIVED = 8 << 20


def ask(calls: Sequence[Call], seconds: float) -> list[Reply]:
    """
    Send all *calls* at once, and return their replies, within *seconds*.

    Raises:
        ImportError: somebody listens, and h2 is not installed.
    """
    end = time.monotonic() + seconds
    asked = [Pending(call, seconds) for call in calls]
    targets: dict[Target, list[Pending]] = {}
    for one in asked:
        targets.setdefault(one.call.target, []).append(one)
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for target, there in targets.items():
            connection = _Connection(selector, there)
            stack.callback(connection.close)
            connection.open(target, end - time.monotonic())
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for key, ready in selector.select(left):
                key.data.turn(ready)
    return [one.reply for one in asked]


class _Connection:
    """One connection, from its first byte to the last reply."""

    def __init__(
        self, selector: selectors.BaseSelector, pending: Sequence[Pending]
    ) -> None:
        self._selector = selector
        self._pending = pending
        self._sock: socket.socket | None = None
        self._session: Session | None = None
        self._unsent = b""
        self._received = 0

    def open(self, target: Target, seconds: float) -> None:
        """Begin to connect; a name takes at most *seconds* to look up."""
        try:
            family, address = _address(target, seconds)
        except TimeoutError:
            self._end(SLOW)
            return
        except OSError:
            self._end(GONE)
            return
        try:
            self._sock = socket.socket(family, socket.SOCK_STREAM)
            self._sock.setblocking(False)  # noqa: FBT003 - the standard library's
            error = self._sock.connect_ex(address)
        except OSError:
            self._end(GONE)
            return
        if error in (0, EINPROGRESS):
            self._selector.register(self._sock, selectors.EVENT_WRITE, self)
        else:  # of a Unix socket the queue may be full
            self._end(SLOW if error == EAGAIN else GONE)

    def turn(self, ready: int) -> None:
        """Do what the socket is *ready* for."""
        assert self._sock is not None  # noqa: S101 - only an open one gets a turn
        try:
            session = self._talk(self._sock, ready)
        except (OSError, SessionError):
            self._end(GONE)
            return
        if len(self._unsent) > _MOST_UNSENT:
            self._end(GONE)
        elif session.done:
            self.close()
        else:
            wanted = selectors.EVENT_WRITE if self._unsent else 0
            self._selector.modify(self._sock, selectors.EVENT_READ | wanted, self)

    def close(self) -> None:
        """Hang up; twice is harmless."""
        sock, self._sock = self._sock, None
        if sock is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(sock)
            sock.close()

    def _talk(self, sock: socket.socket, ready: int) -> Session:
        session = self._session = self._session or _session(sock, self._pending)
        with contextlib.suppress(BlockingIOError):
            if ready & selectors.EVENT_READ:
                data = _received(sock)
                self._received += len(data)
                if self._received > _MOST_RECEIVED:
                    msg = "it sends more than any answer has"
                    raise SessionError(msg)
                session.receive(data)
        self._unsent += session.to_send()
        with contextlib.suppress(BlockingIOError):
            if self._unsent:
                self._unsent = self._unsent[sock.send(self._unsent) :]
        return session

    def _end(self, failure: Failure) -> None:
        for one in self._pending:
            one.end(failure)
        self.close()


def _session(sock: socket.socket, pending: Sequence[Pending]) -> Session:
    """Return a session on *sock*; an `OSError` tells that nobody listens there."""
    if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, os.strerror(error))
    # After that: where nobody ever listens, h2 is not even loaded.
    from jaxmon_exporter.grpc.session import Session  # noqa: PLC0415 - see above

    return Session(pending)


def _received(sock: socket.socket) -> bytes:
    data = sock.recv(_CHUNK)
    if not data:
        raise ConnectionResetError
    return data


def _address(target: Target, seconds: float) -> tuple[int, Any]:
    if isinstance(target, str):
        return socket.AF_UNIX, target
    host, port = target
    family, _, _, _, address = addresses(host, port, seconds)[0]
    return family, address
