"""
gRPC calls to the runtimes, concurrently and with one deadline.

Channels exist for one round of calls: a server that hangs or restarts leaves nothing
behind, and between polls there is no thread and no connection. Requests and replies are
bytes, so grpcio works without protobuf.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote


Target: TypeAlias = "tuple[str, int] | str"
"""A host and a port, or the path of a Unix socket."""

Reply: TypeAlias = "bytes | Failure"

_UNAVAILABLE = "UNAVAILABLE"
_DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
# Status codes for data that a server does not have, now or ever.
_UNKNOWN = frozenset({"NOT_FOUND", "UNIMPLEMENTED", "INVALID_ARGUMENT"})

# Of one reply; the largest that a runtime has are some 10 KiB.
_MOST_BYTES = 1 << 20
# What else a server sends is read as fast as it comes and can pile up meanwhile.
_MOST_GROWTH = 48 << 20
_CHECK_SECONDS = 0.05
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_OPTIONS = (
    # A web proxy cannot reach a runtime on this host.
    ("grpc.enable_http_proxy", 0),
    # A poll is repeated anyway, by its own clock.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.max_receive_message_length", _MOST_BYTES),
    # Separate connections, which are closed with the channel.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.default_authority", "localhost"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """
    One request.

    Args:
        target: address of the server.
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
        """
        Whether the server lacks the method or metric, so that retrying is useless.

        A web server that answers 404 looks the same: gRPC counts that as UNIMPLEMENTED.
        """
        return self.code in _UNKNOWN

    @property
    def slow(self) -> bool:
        """Whether no reply arrived in time."""
        return self.code == _DEADLINE_EXCEEDED

    @property
    def gone(self) -> bool:
        """Whether nothing, or something else, is listening there."""
        return self.code == _UNAVAILABLE


SLOW = Failure(_DEADLINE_EXCEEDED)
GONE = Failure(_UNAVAILABLE)
# A message that was cut off, which grpcio returns as a success without one.
CUT_OFF = Failure("INTERNAL")


def call_all(calls: Sequence[Call], seconds: float) -> list[Reply]:
    """
    Send all *calls* concurrently, and return their replies, within *seconds*.

    Raises:
        ImportError: there are calls, and grpcio is not installed.
    """
    if not calls:
        return []
    # Its core logs socket errors to stderr; the replies contain them as well.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Loaded only if something is listening: 15 MB, and a tenth of a second that does
    # not count as the runtimes'.
    import grpc  # noqa: PLC0415 - see above

    end = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        channels = {
            target: stack.enter_context(grpc.insecure_channel(_url(target), _OPTIONS))
            for target in dict.fromkeys(call.target for call in calls)
        }
        futures = [
            channels[call.target]
            .unary_unary(call.method)
            .future(call.request, timeout=max(0.0, end - time.monotonic()))
            for call in calls
        ]
        _wait(grpc, futures, end)
        return [_reply(future) for future in futures]


def _wait(grpc: Any, futures: Sequence[Any], end: float) -> None:
    """Wait for all *futures* until *end*, or until a server floods this process."""
    most = _resident_bytes() + _MOST_GROWTH
    for future in futures:
        while not future.done() and (left := end - time.monotonic()) > 0:
            with contextlib.suppress(grpc.FutureTimeoutError):
                future.exception(min(left, _CHECK_SECONDS))
            if not future.done() and _resident_bytes() > most:
                return


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_bytes().split()[1]
    return int(pages) * _PAGE_BYTES


def _reply(future: Any) -> Reply:
    """Return what has come of a call."""
    if not future.done():
        return SLOW
    if (error := future.exception()) is not None:
        return Failure(error.code().name)
    reply: bytes | None = future.result()
    return CUT_OFF if reply is None else reply


def _url(target: Target) -> str:
    """Return *target* as gRPC spells it."""
    if isinstance(target, str):
        return f"unix:{quote(os.fsencode(target))}"
    host, port = target
    name = quote(os.fsencode(host), safe=":")
    return f"dns:///[{name}]:{port}" if ":" in host else f"dns:///{name}:{port}"
