"""
A connection limited in time and size, whatever the peer does.

One deadline and one size limit apply to everything: name lookup, connecting, TLS,
sending, and all data received. Readers need no limits themselves.
"""

from __future__ import annotations

import io
import socket
from _queue import Empty, SimpleQueue
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jaxmon.clocks import monotonic
from jaxmon.threads import DaemonThread


if TYPE_CHECKING:
    import ssl

Place: TypeAlias = "tuple[str, int] | Path"
"""A host and a port, or a Unix socket."""

_CHUNK = 1 << 16


class TooLargeError(OSError):
    """The peer sent more than allowed."""


class Bounds:
    """Limits of one exchange, which starts now: for all of it, and all received."""

    def __init__(self, seconds: float, max_bytes: int) -> None:
        self._seconds = seconds
        self._end = monotonic() + seconds
        self._max_bytes = max_bytes
        self._received = 0

    def extend(self, seconds: float) -> None:
        """Give the rest of the exchange *seconds* from now."""
        self._seconds = seconds
        self._end = monotonic() + seconds

    def remaining(self) -> float:
        """Return the remaining seconds, or raise a `TimeoutError` if none are left."""
        if (remaining := self._end - monotonic()) <= 0:
            raise self.timeout_error()
        return remaining

    def timeout_error(self) -> TimeoutError:
        """Return the error to raise when no time is left."""
        return TimeoutError(
            f"timed out: no complete response within {self._seconds:g} s"
        )

    def count(self, received: int) -> None:
        """Count received bytes, or raise a `TooLargeError` if there are too many."""
        self._received += received
        if self._received > self._max_bytes:
            most = f"{self._max_bytes / (1 << 20):g} MiB"
            msg = f"the response is larger than {most}, including headers"
            raise TooLargeError(msg)


class Stream:
    """
    A connected socket within *bounds*, which `http.client` takes for a socket; one
    thread. Raises `TimeoutError`, `TooLargeError` and `OSError`.
    """

    def __init__(self, connected: socket.socket, bounds: Bounds) -> None:
        self._socket = connected
        self._bounds = bounds
        self._file = _File(Received(connected, bounds), _CHUNK)

    def encrypt(self, context: ssl.SSLContext, host: str) -> None:
        """Use TLS from now on, with *host*; raises `ssl.SSLError`."""
        self._socket.settimeout(self._bounds.remaining())
        with self._in_time():
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        # Data received before TLS is not authentic.
        self._file = _File(Received(self._socket, self._bounds), _CHUNK)

    def sendall(self, data: bytes) -> None:
        """Send all of *data*."""
        unsent = memoryview(data)
        with self._in_time():
            while unsent:
                # TLS would restart the timeout with each piece.
                self._socket.settimeout(self._bounds.remaining())
                unsent = unsent[self._socket.send(unsent) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the received data as a file, the same one for each *mode*."""
        del mode
        return self._file

    def close(self) -> None:
        """No-op: `http.client` closes the socket before the response has been read."""

    def close_socket(self) -> None:
        """Close it."""
        self._socket.close()

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise self._bounds.timeout_error() from None


@contextmanager
def connected(place: Place, bounds: Bounds) -> Iterator[Stream]:
    """Connect to *place* for a block. Raises `OSError`, also a `TimeoutError`."""
    plain = (
        _connected(socket.AF_UNIX, str(place), bounds.remaining())
        if isinstance(place, Path)
        else _connected_to_host(*place, bounds)
    )
    stream = Stream(plain, bounds)
    try:
        yield stream
    finally:
        stream.close_socket()


def _addresses(host: str, port: int, seconds: float) -> list[tuple[Any, ...]]:
    """
    Return the addresses of *host* within *seconds*; raises `OSError`. A resolver has no
    limit of ours: names are looked up on a thread, left behind if it is slow.
    """
    kind = socket.SOCK_STREAM
    with suppress(OSError, UnicodeError):
        numeric = socket.AI_NUMERICHOST
        return list(socket.getaddrinfo(host, port, type=kind, flags=numeric))
    found: SimpleQueue[list[tuple[Any, ...]] | OSError] = SimpleQueue()

    def look_up() -> None:
        try:
            found.put(list(socket.getaddrinfo(host, port, type=kind)))
        except OSError as error:
            found.put(error)
        except ValueError:  # of its encoding
            found.put(OSError(f"{host!r} is not a valid host name"))

    DaemonThread("jaxmon-resolve", look_up).start()
    with suppress(Empty):
        answer = found.get(timeout=seconds)
        if isinstance(answer, OSError):
            raise answer
        return answer
    msg = f"timed out resolving {host} after {seconds:.3g} s"
    raise TimeoutError(msg)


def _connected_to_host(host: str, port: int, bounds: Bounds) -> socket.socket:
    found = _addresses(host, port, bounds.remaining())
    for number, (family, *_, address) in enumerate(found):
        untried = len(found) - number
        try:
            # An address that does not respond must leave time for the others.
            return _connected(family, address, bounds.remaining() / untried)
        except OSError:
            if untried == 1:
                raise
    raise bounds.timeout_error()


def _connected(family: int, address: Any, seconds: float) -> socket.socket:
    plain = socket.socket(family, socket.SOCK_STREAM)
    try:
        plain.settimeout(seconds)
        plain.connect(address)
    except BaseException:
        plain.close()
        raise
    return plain


class _File(io.BufferedReader):
    """Stays open when a response has been read: another one may follow."""

    def close(self) -> None:
        """Do nothing."""


class Received(io.RawIOBase):
    """What a socket receives, within bounds."""

    def __init__(self, connected_socket: socket.socket, bounds: Bounds) -> None:
        self._socket = connected_socket
        self._bounds = bounds

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # bytes
        """Receive some bytes."""
        self._socket.settimeout(self._bounds.remaining())
        try:
            count = self._socket.recv_into(buffer)
        except TimeoutError:
            raise self._bounds.timeout_error() from None
        self._bounds.count(count)
        return count
