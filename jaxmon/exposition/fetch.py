"""
Pages fetched from many Unix sockets at once.

One thread, one deadline for all: a server that hangs, drips or floods costs no other
server its page, and the whole takes no longer than the deadline. Hundreds of servers
get their turn one after the other, in as many connections as a process can spare.
"""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jaxmon.errors import JaxmonError


GONE = "gone"
TIMEOUT = "timeout"
TOO_LARGE = "too_large"
BROKEN = "broken"

_CHUNK = 1 << 18
_OK = 200
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")
_LENGTH = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*(?:\r\n|$)")
_ENCODED = re.compile(rb"(?i)\r\n(?:transfer|content)-encoding:")
_SHOWN = 40
# A process may have 1,024 descriptors, as a rule, and others need some.
_AT_ONCE = 256


class FetchError(JaxmonError):
    """
    A page that did not arrive.

    Args:
        reason: ``gone`` (nobody listens), ``timeout``, ``too_large`` or ``broken``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True)
class _Exchange:
    """
    One request under way.
    """

    key: str
    socket: socket.socket
    unsent: bytes
    received: bytearray = field(default_factory=bytearray)


def fetch_all(
    paths: Mapping[str, Path],
    target: str,
    *,
    timeout: float,
    max_bytes: int,
    accept: str = "text/plain; version=0.0.4",
) -> dict[str, str | FetchError]:
    """
    GET *target* from each of the sockets *paths*.

    Args:
        paths: by whatever names the servers for the caller.
        target: path and query.
        timeout: seconds for all of it.
        max_bytes: most that one response may have, head included.
        accept: media type to ask for.

    Returns:
        The body, or why there is none, for every key of *paths*.
    """
    request = (
        f"GET {target} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: jaxmon\r\n"
        f"Accept: {accept}\r\nConnection: close\r\n\r\n"
    ).encode("ascii")
    answers: dict[str, str | FetchError] = {}
    end = time.monotonic() + timeout
    waiting = iter(paths.items())
    with selectors.DefaultSelector() as selector:
        try:
            _connect(selector, waiting, request, answers)
            while selector.get_map() and (left := end - time.monotonic()) > 0:
                _converse(selector, answers, left, max_bytes)
                _connect(selector, waiting, request, answers)
        finally:
            for entry in list(selector.get_map().values()):
                entry.data.socket.close()
    late = FetchError(TIMEOUT, f"no complete answer within {timeout:g} s")
    return {key: answers.get(key, late) for key in paths}


def _connect(
    selector: selectors.BaseSelector,
    waiting: Iterator[tuple[str, Path]],
    request: bytes,
    answers: dict[str, str | FetchError],
) -> None:
    """
    Begin as many exchanges of those *waiting* as may be under way.
    """
    while len(selector.get_map()) < _AT_ONCE and (following := next(waiting, None)):
        key, path = following
        try:
            exchange = _Exchange(key, _connected(path), request)
        except FetchError as error:
            answers[key] = error
        else:
            selector.register(exchange.socket, selectors.EVENT_WRITE, exchange)


def _connected(path: Path) -> socket.socket:
    """
    Return a non-blocking socket connected to *path*.
    """
    client: socket.socket | None = None
    try:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.setblocking(False)  # noqa: FBT003 - the standard library's signature
        client.connect(str(path))
    except OSError as error:
        if client is not None:
            client.close()
        if isinstance(error, (ConnectionRefusedError, FileNotFoundError)):
            raise FetchError(GONE, "nobody listens on its socket") from error
        if isinstance(error, BlockingIOError):
            raise FetchError(TIMEOUT, "its queue of connections is full") from error
        raise FetchError(BROKEN, f"cannot connect: {error}") from error
    return client


def _converse(
    selector: selectors.BaseSelector,
    answers: dict[str, str | FetchError],
    seconds: float,
    max_bytes: int,
) -> None:
    """
    Send and receive what is ready within *seconds*.
    """
    for entry, _ in selector.select(seconds):
        exchange: _Exchange = entry.data
        try:
            answer = _step(selector, exchange, max_bytes)
        except FetchError as error:
            answer = error
        except BlockingIOError:
            continue
        except OSError as error:
            answer = FetchError(BROKEN, f"connection failed: {error}")
        if answer is not None:
            answers[exchange.key] = answer
            selector.unregister(exchange.socket)
            exchange.socket.close()


def _step(
    selector: selectors.BaseSelector, exchange: _Exchange, max_bytes: int
) -> str | FetchError | None:
    """
    Do what *exchange* is ready for; return the body once it is complete.
    """
    if exchange.unsent:
        exchange.unsent = exchange.unsent[exchange.socket.send(exchange.unsent) :]
        if not exchange.unsent:
            selector.modify(exchange.socket, selectors.EVENT_READ, exchange)
        return None
    if chunk := exchange.socket.recv(_CHUNK):
        exchange.received += chunk
        if len(exchange.received) > max_bytes:
            return FetchError(TOO_LARGE, f"its page is larger than {max_bytes} bytes")
        return None
    return _body(exchange.received)


def _body(response: bytearray) -> str:
    """
    Return the text of a complete HTTP response, as servers of ours send them.

    The standard library's client would bring a mail parser and TLS with it.
    """
    head, blank, body = response.partition(b"\r\n\r\n")
    status = _STATUS.match(head)
    if not blank or status is None or _ENCODED.search(head):
        message = f"its answer is no HTTP page: {bytes(head[:_SHOWN])!r}"
        raise FetchError(BROKEN, message)
    if int(status[1]) != _OK:
        raise FetchError(BROKEN, f"it answered HTTP status {int(status[1])}")
    if (told := _LENGTH.search(head)) is not None:
        length = int(told[1])
        if len(body) < length:
            message = f"its answer ended after {len(body)} of {length} bytes"
            raise FetchError(BROKEN, message)
        del body[length:]
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FetchError(BROKEN, f"its answer is not UTF-8: {error}") from error
