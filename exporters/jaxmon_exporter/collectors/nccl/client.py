"""
Queries NCCL's RAS at its port, within a time and size limit.

The protocol is that of NVIDIA's own client (NCCL 2.24 to 2.30, ``src/ras/client.cc``
and ``src/ras/client_support.cc``): lines of text, one reply line for each command, and
after ``STATUS`` everything up to the end of the connection.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from jaxmon.host.http.fetch import BROKEN, TIMEOUT, TOO_LARGE, FetchError
from jaxmon.host.http.stream import Bounds, Stream, TooLargeError, connected


GONE = "gone"
NOT_RAS = "not_ras"

_PROTOCOL = b"CLIENT PROTOCOL 2\n"
_GREETING = b"SERVER PROTOCOL "
# Never 0: RAS frees the data of a query in JSON only when this has passed.
_LEG_SECONDS = 3
_TIMEOUT = b"TIMEOUT %d\n" % _LEG_SECONDS
_JSON = b"SET FORMAT json\n"
_STATUS = b"STATUS\n"
_LINE = 1024
# All processes of a host listen at one port, and the kernel picks one. It may be the
# one that hangs, while the others know.
_GREETINGS = 4
_GREETING_SECONDS = 1.0


Place: TypeAlias = tuple[str, int]
"""A host and a port."""


class BrokenReplyError(ValueError):
    """A reply is not one of RAS, or not complete."""


class Reply(NamedTuple):
    """What RAS returned to ``STATUS``."""

    body: bytes
    json: bool


def place_of(address: str) -> Place:
    """
    Return host and port of *address*, as in ``NCCL_RAS_ADDR``.

    Raises:
        ValueError: it has none.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdecimal() or len(port) > 5:  # noqa: PLR2004 - digits
        msg = f"{address!r} is not an address; give HOST:PORT"
        raise ValueError(msg)
    if not 0 < int(port) < 1 << 16:
        msg = f"{address!r} has no valid port; give one from 1 to 65535"
        raise ValueError(msg)
    return host, int(port)


def found(place: Place) -> Place | None:
    """
    Return the address of *place* at which a process listens; costs its job nothing.
    """
    host, port = place
    # NCCL listens at one of these; no resolver, and no thread for it, is needed.
    hosts = ("127.0.0.1", "::1") if host == "localhost" else (host,)
    for one in hosts:
        try:
            with connected((one, port), Bounds(_GREETING_SECONDS, 0)):
                return one, port
        except TimeoutError:  # as a process that is stopped, with a full queue
            return one, port
        except OSError:
            continue
    return None


def query(place: Place, *, seconds: float, max_bytes: int, json: bool = True) -> Reply:
    """
    Return the status of the job.

    Args:
        place: host and port.
        seconds: for the reply, after at most four for a process that responds.
        max_bytes: maximum size of all that is received.
        json: in JSON, if that NCCL can.

    Raises:
        FetchError: with the reason.
    """
    try:
        with _greeted(place, max_bytes) as (stream, bounds):
            bounds.extend(seconds)
            return _status(stream, json=json)
    except TimeoutError as error:
        raise FetchError(TIMEOUT, str(error)) from error
    except TooLargeError as error:
        raise FetchError(TOO_LARGE, str(error)) from error
    except ConnectionRefusedError as error:
        message = "no process listens there"
        raise FetchError(GONE, message) from error
    except OSError as error:
        raise FetchError(BROKEN, f"connection failed: {error}") from error


@contextmanager
def _greeted(place: Place, max_bytes: int) -> Iterator[tuple[Stream, Bounds]]:
    """Connect to one that responds."""
    for left in reversed(range(_GREETINGS)):
        bounds = Bounds(_GREETING_SECONDS, max_bytes)
        with connected(place, bounds) as stream:
            try:
                stream.sendall(_PROTOCOL)
                line = _line(stream)
            except TimeoutError:
                if left:
                    continue
                raise
            if not line.upper().startswith(_GREETING):
                _reject(line)
            yield stream, bounds
            return


def _status(stream: Stream, *, json: bool) -> Reply:
    stream.sendall(_TIMEOUT)
    if (line := _line(stream)) != b"OK\n":
        _reject(line)
    if json:
        stream.sendall(_JSON)
        # NCCL before 2.28.7 does not know the command.
        if (line := _line(stream)) != b"OK\n":
            json = False
            if not line.startswith(b"ERROR: "):
                _reject(line)
    stream.sendall(_STATUS)
    return Reply(stream.makefile("rb").read(), json)


def _line(stream: Stream) -> bytes:
    return stream.makefile("rb").readline(_LINE)


def _reject(line: bytes) -> None:
    if not line:
        raise FetchError(BROKEN, "it closed the connection")
    shown = line[:40].decode(errors="replace")
    raise FetchError(NOT_RAS, f"it does not respond as NCCL's RAS does, but {shown!r}")


def is_here(host: str) -> bool | None:
    """
    Return whether *host*, an address, is one of this host; `None` if that is unknown.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.is_link_local and address.version == 6:  # noqa: PLR2004 - lacks its interface
        return None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
