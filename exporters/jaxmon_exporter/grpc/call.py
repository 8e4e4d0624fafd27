"""One call: what is sent, what comes back, and what that means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from jaxmon.errors import JaxmonError


Target: TypeAlias = "tuple[str, int] | str"
"""A host and a port, or the path of a Unix socket."""

Reply: TypeAlias = "bytes | Failure"

_UNAVAILABLE = "UNAVAILABLE"
_DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
# By gRPC's numbers: https://grpc.github.io/grpc/core/md_doc_statuscodes.html.
_CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    _DEADLINE_EXCEEDED,
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    _UNAVAILABLE,
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
_NUMBERS = {str(number).encode(): code for number, code in enumerate(_CODES)}
# What a server says when it does not have what was asked for, now or ever.
_UNKNOWN = frozenset({"NOT_FOUND", "UNIMPLEMENTED", "INVALID_ARGUMENT"})

# Before a message: whether it is compressed, and its length.
_PREFIX = 5


@dataclass(frozen=True, slots=True)
class Call:
    """
    One request.

    Args:
        target: where to.
        method: its path, such as ``/package.Service/Method``.
        request: the message.
    """

    target: Target
    method: str
    request: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """
    A call without a reply.

    Args:
        code: name of gRPC's status.
    """

    code: str

    @property
    def unknown(self) -> bool:
        """Whether the server does not have that; it is no use to ask again."""
        return self.code in _UNKNOWN

    @property
    def slow(self) -> bool:
        """Whether no reply came in time."""
        return self.code == _DEADLINE_EXCEEDED

    @property
    def gone(self) -> bool:
        """Whether nobody is there, or nobody any more, or a stranger."""
        return self.code == _UNAVAILABLE


SLOW = Failure(_DEADLINE_EXCEEDED)
GONE = Failure(_UNAVAILABLE)
CANCELLED = Failure("CANCELLED")
UNSAID = Failure("UNKNOWN")


class SessionError(JaxmonError):
    """The other side speaks no HTTP/2, or had enough."""


class Pending:
    """
    A call under way.

    Args:
        call: as it was asked for.
        seconds: that the server has for it.

    Attributes:
        reply: what came of it so far.
        done: nothing more will come of it.
    """

    def __init__(self, call: Call, seconds: float) -> None:
        self.call = call
        self.reply: Reply = SLOW
        self.done = False
        self._seconds = seconds
        self._received = bytearray()

    def headers(self) -> list[tuple[str, str]]:
        """Return what introduces the request."""
        return [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", self.call.method),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "jaxmon"),
            # So that the server gives up as well.
            ("grpc-timeout", f"{max(1, round(self._seconds * 1000))}m"),
        ]

    def body(self) -> bytes:
        """Return the request as it is sent."""
        request = self.call.request
        return b"\0" + len(request).to_bytes(_PREFIX - 1, "big") + request

    def receive(self, data: bytes) -> None:
        """Take some bytes of the reply."""
        self._received += data

    def begun(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """
        Take the headers of a response; of one that fails they may be all there is.
        """
        told = dict(headers)
        if told.get(b":status") != b"200":
            self.end(GONE)
        elif b"grpc-status" in told:
            self.ended(told.items())

    def ended(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Take what stands after a response, and says how it went."""
        code = _NUMBERS.get(dict(headers).get(b"grpc-status", b""))
        if code is None:
            self.end(UNSAID)
        else:
            self.end(self._message() if code == "OK" else Failure(code))

    def end(self, reply: Reply) -> None:
        """Settle for *reply*, unless there is one."""
        if not self.done:
            self.reply, self.done = reply, True
            self._received.clear()

    def _message(self) -> Reply:
        prefix, message = self._received[:_PREFIX], bytes(self._received[_PREFIX:])
        compressed, length = prefix[:1] != b"\0", int.from_bytes(prefix[1:], "big")
        # Compressed it cannot be: nobody told the server that it may.
        if compressed or len(prefix) < _PREFIX or len(message) != length:
            return Failure("INTERNAL")
        return message
