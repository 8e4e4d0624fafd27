"""
A client of libtpu's metrics service, which each process that holds TPUs may serve.

Bytes go in and come out; `tpu_messages` knows what they mean. Many requests are
under way at once, under one deadline, so that a slow or dead server costs no more
time than a single request to it. Neither libtpu nor Google's bindings are loaded:
they hold the interpreter's lock while they wait.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeAlias


Method = Literal["GetRuntimeMetric", "ListSupportedMetrics", "GetTpuRuntimeStatus"]
Reply: TypeAlias = "bytes | Failure"

DEFAULT_PORT = 8431
PROBED_PORTS = range(DEFAULT_PORT, DEFAULT_PORT + 8)

_MOST_ADDRESSES = 16
_PROBE_SECONDS = 0.2
_HIGHEST_PORT = 65535
_SERVICE = "tpu.monitoring.runtime.RuntimeMetricService"
_MOST_BYTES = 4 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.max_receive_metadata_size", 64 << 10),
    # A proxy for the web is no way to this host.
    ("grpc.enable_http_proxy", 0),
    # Whether a server is back is found out by the next poll, not by its pace.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)

# What the server says when it does not have what was asked for, now or ever.
_UNKNOWN = frozenset({"NOT_FOUND", "UNIMPLEMENTED", "INVALID_ARGUMENT"})
_SLOW = "DEADLINE_EXCEEDED"


@dataclass(frozen=True, slots=True)
class Address:
    """
    Where a process may serve.

    Args:
        name: value of the label ``runtime``: the port, or the socket's file.
        target: as gRPC wants it.
    """

    name: str
    target: str


@dataclass(frozen=True, slots=True)
class Failure:
    """
    A request without a reply.

    Args:
        code: name of gRPC's status.
    """

    code: str

    @property
    def unknown(self) -> bool:
        """
        Whether the server does not have that; it is no use to ask again.
        """
        return self.code in _UNKNOWN

    @property
    def slow(self) -> bool:
        """
        Whether no reply came in time.
        """
        return self.code == _SLOW


class Runtime:
    """
    One address, and the connection to it while somebody is there.

    Args:
        address: of the server.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._channel: Any = None

    def start(self, grpc: Any, method: Method, request: bytes, seconds: float) -> Any:
        """
        Start a request with the package *grpc*; returns its future at once.
        """
        if self._channel is None:
            self._channel = grpc.insecure_channel(self.address.target, options=_OPTIONS)
        call = self._channel.unary_unary(f"/{_SERVICE}/{method}", None, None)
        return call.future(request, timeout=seconds)

    def close(self) -> None:
        """
        Hang up; the next request connects anew, without waiting.
        """
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


def ask(
    grpc: ModuleType,
    requests: Sequence[tuple[Runtime, Method, bytes]],
    seconds: float,
) -> list[Reply]:
    """
    Send all *requests* at once, and return their replies, within *seconds*.
    """
    futures = [
        runtime.start(grpc, method, request, seconds)
        for runtime, method, request in requests
    ]
    return [_reply(grpc, future) for future in futures]


def refused(address: Address) -> bool:
    """
    Tell whether nobody listens, which a host tells of itself at once.

    Saves the channel, and on a host that is idle all of gRPC.
    """
    kind, _, place = address.target.partition(":")
    where: str | tuple[str, int]
    if kind == "unix":
        family, where = socket.AF_UNIX, place
    elif kind == "ipv4":
        family, where = socket.AF_INET, ("127.0.0.1", int(place.rpartition(":")[2]))
    else:
        return False
    with socket.socket(family) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(where)
        except TimeoutError:
            return False
        except OSError:
            return True
    return False


def addresses(environ: Mapping[str, str]) -> tuple[list[Address], bool]:
    """
    Return where to look for runtimes, and whether *environ* told so.

    The variables are those that tell libtpu where to serve. Without them: the
    ports that are usual, of which most are not in use.
    """
    if address := environ.get("TPU_RUNTIME_METRICS_ADDRESS", "").strip():
        return [_address(address)], True
    if (text := environ.get("TPU_RUNTIME_METRICS_PORTS")) is not None:
        return [_local(port) for port in _ports(text)], True
    if ports := _ports(environ.get("TPU_RUNTIME_PRIMARY_METRIC_PORT", "")):
        return [_local(port) for port in ports], True
    return [_local(port) for port in PROBED_PORTS], False


def _ports(text: str) -> list[int]:
    found = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    right = dict.fromkeys(port for port in found if 0 < port <= _HIGHEST_PORT)
    return list(right)[:_MOST_ADDRESSES]


def _local(port: int) -> Address:
    return Address(str(port), f"ipv4:127.0.0.1:{port}")


def _address(text: str) -> Address:
    path = text.removeprefix("unix://").removeprefix("unix:")
    if path != text or text.startswith("/"):
        return Address(path.rpartition("/")[2], f"unix:{path}")
    return Address(text.rpartition(":")[2], text)


def _reply(grpc: Any, future: Any) -> Reply:
    try:
        reply: bytes = future.result()
    except grpc.RpcError as error:
        return Failure(error.code().name)
    return reply
