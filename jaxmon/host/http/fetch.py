"""
Fetches metrics from many Unix sockets on one thread, with one deadline for all.

A server that hangs, trickles or floods does not affect the others. Hundreds get their
turn in as many connections as a process can spare.
"""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from jaxmon.errors import JaxmonError
from jaxmon.host import rundir
from jaxmon.host.files.descriptor import identity


GONE = "gone"
LEFT = "left"
TIMEOUT = "timeout"
TOO_LARGE = "too_large"
BROKEN = "broken"

_CHUNK = 1 << 18
_OK = 200
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")
_LENGTH = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*(?:\r\n|$)")
_ENCODED = re.compile(rb"(?i)\r\n(?:transfer|content)-encoding:")
_SHOWN = 40
# A process may usually have 1,024 descriptors, and other code needs some.
_AT_ONCE = 256


class FetchError(JaxmonError):
    """
    Raised when a response did not arrive, with a reason: ``gone`` (nothing is
    listening), ``left`` (its socket was removed, as by an orderly exit), ``timeout``,
    ``too_large``, ``broken``, or another client's own.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True, eq=False, repr=False)
class _Transfer:
    """A request to the socket *path*; if its *file* changed, it is another server's."""

    key: str
    path: Path
    file: tuple[int, int] | None
    socket: socket.socket
    unsent: bytes
    received: bytearray = field(default_factory=bytearray)


def fetch_all(  # noqa: PLR0913 - each bound is one of its own
    paths: Mapping[str, Path],
    target: str,
    *,
    timeout: float,
    max_bytes: int,
    max_total: float = inf,
    accept: str = "text/plain; version=0.0.4",
) -> dict[str, str | FetchError]:
    """
    GET *target* from each of the sockets *paths*; return the body or the error of each
    by key, within *timeout* seconds for all. A response has *max_bytes*, head included,
    all of them *max_total*; beyond that, the largest are dropped.
    """
    if not paths:
        return {}
    request = (
        f"GET {target} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: jaxmon\r\n"
        f"Accept: {accept}\r\nConnection: close\r\n\r\n"
    ).encode("ascii")
    end = time.monotonic() + timeout
    waiting = iter(paths.items())
    with selectors.DefaultSelector() as selector:
        batch = _ConcurrentFetch(selector, request, max_bytes, max_total)
        try:
            batch.connect(waiting)
            while selector.get_map() and (left := end - time.monotonic()) > 0:
                batch.converse(left)
                batch.connect(waiting)
        finally:
            for entry in list(selector.get_map().values()):
                entry.data.socket.close()
    late = FetchError(TIMEOUT, f"no complete response within {timeout:g} s")
    return {key: batch.answers.get(key, late) for key in paths}


@dataclass(slots=True, eq=False, repr=False)
class _ConcurrentFetch:
    """All exchanges of one call; *request* is the same for all."""

    _selector: selectors.BaseSelector
    _request: bytes
    _max_bytes: int
    _max_total: float
    answers: dict[str, str | FetchError] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _total: int = 0

    def connect(self, waiting: Iterator[tuple[str, Path]]) -> None:
        """Begin as many exchanges of those *waiting* as may be under way."""
        under_way = self._selector.get_map()
        while len(under_way) < _AT_ONCE and (following := next(waiting, None)):
            key, path = following
            # Recorded before connecting: compared later with what is there then.
            file = identity(path)
            try:
                made = _Transfer(key, path, file, _connected(path), self._request)
            except FetchError as error:
                self.answers[key] = error
            else:
                self._selector.register(made.socket, selectors.EVENT_WRITE, made)

    def converse(self, seconds: float) -> None:
        """Send and receive what is ready within *seconds*."""
        for entry, _ in self._selector.select(seconds):
            exchange: _Transfer = entry.data
            if exchange.key in self.answers:  # left out meanwhile
                continue
            try:
                answer = self._step(exchange)
            except FetchError as error:
                answer = error
            except BlockingIOError:
                continue
            except OSError as error:
                answer = FetchError(BROKEN, f"connection failed: {error}")
            if isinstance(answer, FetchError) and answer.reason == BROKEN:
                answer = _ended(exchange) or answer
            if answer is not None:
                self._end(exchange, answer)
            if self._total > self._max_total:
                self._leave_out_the_largest()

    def _step(self, exchange: _Transfer) -> str | FetchError | None:
        if exchange.unsent:
            exchange.unsent = exchange.unsent[exchange.socket.send(exchange.unsent) :]
            if not exchange.unsent:
                self._selector.modify(exchange.socket, selectors.EVENT_READ, exchange)
            return None
        chunk = exchange.socket.recv(_CHUNK)
        if not chunk:
            return _body(exchange.received)
        exchange.received += chunk
        self._sizes[exchange.key] = len(exchange.received)
        self._total += len(chunk)
        if len(exchange.received) > self._max_bytes:
            message = f"its response is larger than {self._max_bytes} bytes"
            return FetchError(TOO_LARGE, message)
        return None

    def _end(self, exchange: _Transfer, answer: str | FetchError) -> None:
        self.answers[exchange.key] = answer
        if isinstance(answer, FetchError):
            self._total -= self._sizes.pop(exchange.key, 0)
        self._selector.unregister(exchange.socket)
        exchange.socket.close()

    def _leave_out_the_largest(self) -> None:
        """Free space: a large response must not displace others."""
        largest = max(self._sizes, key=lambda key: (self._sizes[key], key))
        message = f"it would bring the total above {self._max_total:.0f} bytes"
        error = FetchError(TOO_LARGE, message)
        for entry in list(self._selector.get_map().values()):
            if entry.data.key == largest:
                self._end(entry.data, error)
                return
        self.answers[largest] = error
        self._total -= self._sizes.pop(largest)


def _ended(exchange: _Transfer) -> FetchError | None:
    """Return how the server ended meanwhile, `None` when it did not, but is broken."""
    if identity(exchange.path) != exchange.file:
        return FetchError(LEFT, "it exited during the request")
    try:
        _connected(exchange.path).close()
    except FetchError as error:
        return error if error.reason in (GONE, LEFT) else None
    return None


def _connected(path: Path) -> socket.socket:
    """Return a non-blocking socket connected to *path*; a link is not followed."""
    if rundir.is_link(path):
        raise FetchError(BROKEN, "its socket is a symbolic link")
    try:
        with ExitStack() as undo:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(client.close)
            client.settimeout(0)
            client.connect(str(path))
            undo.pop_all()
            return client
    except ConnectionRefusedError as error:
        raise FetchError(GONE, "nothing is listening on its socket") from error
    except FileNotFoundError as error:
        raise FetchError(LEFT, "its socket no longer exists") from error
    except BlockingIOError as error:
        raise FetchError(TIMEOUT, "its accept queue is full") from error
    except OSError as error:
        raise FetchError(BROKEN, f"cannot connect: {error}") from error


def _body(response: bytearray) -> str:
    """Return the text of a complete response; `http.client` would load mail and TLS."""
    head, blank, body = response.partition(b"\r\n\r\n")
    status = _STATUS.match(head)
    if not blank or status is None or _ENCODED.search(head):
        message = f"its response is not HTTP: {bytes(head[:_SHOWN])!r}"
        raise FetchError(BROKEN, message)
    if int(status[1]) != _OK:
        raise FetchError(BROKEN, f"it returned HTTP status {int(status[1])}")
    if (declared := _LENGTH.search(head)) is not None:
        length = int(declared[1])
        if len(body) < length:
            message = f"its response was truncated after {len(body)} of {length} bytes"
            raise FetchError(BROKEN, message)
        del body[length:]
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FetchError(BROKEN, f"its response is not UTF-8: {error}") from error
