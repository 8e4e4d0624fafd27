"""
Requests to TPU runtimes, and their replies.

Only the fields that are used, from the schema that Google publishes with its tool
``tpu-info``. Unknown fields are skipped, as protocol buffers require.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, TypeAlias
from urllib.parse import quote

from jaxmon.errors import WireError
from jaxmon.host.formats import protobuf as wire


Attribute: TypeAlias = "int | str"

_SERVICE = "/tpu.monitoring.runtime.RuntimeMetricService"
METRIC = f"{_SERVICE}/GetRuntimeMetric"
NAMES = f"{_SERVICE}/ListSupportedMetrics"
STATUS = f"{_SERVICE}/GetTpuRuntimeStatus"

# The length is one byte.
LONGEST_NAME = 127

# The size of a reply bounds its parsing; these bound what is created from it.
_MOST_BOUNDS = 1000
_MOST_MEASURES = 4096
_MOST_DEPTH = 4

_SIGN = 1 << 63
_DOUBLE = struct.Struct("<d")
_TENSOR_CORE = 1
_TENSOR_CORE_SEQUENCER = 1


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """Observations in buckets; the last has no bound, trailing zeros may lack."""

    count: int
    mean: float
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value of a metric, with attributes such as ``device-id``."""

    attributes: dict[str, Attribute]
    value: float | BucketCounts

    @property
    def device(self) -> int | None:
        """Number of the core or chip, under any of its names and types."""
        for key in ("device_ordinal", "device-id", "device_id"):
            value = self.attributes.get(key)
            if isinstance(value, str) and value.isdecimal() and value.isascii():
                return int(value)
            if isinstance(value, int):
                return value
        # Some name the attribute otherwise; its value is a number all the same.
        values = list(self.attributes.values())
        return values[0] if len(values) == 1 and isinstance(values[0], int) else None


@dataclass(frozen=True, slots=True)
class CoreState:
    """State of a tensor core: its program and run, where it is, and its error."""

    chip: int
    core: int
    program: int | None = None
    run: int | None = None
    counter: int | None = None
    location: str = ""
    queued: int = 0
    error: str = ""


def metric_request(name: str, *, single: bool) -> bytes:
    """Return a request for *name*, of one process alone if *single*."""
    raw = name.encode()
    return b"\x0a" + bytes([len(raw)]) + raw + (b"\x10\x01" if single else b"")


LIST_REQUEST = b""
"""For the names of all metrics."""
STATUS_REQUEST, STATUS_WITH_LOCATIONS = b"", b"\x08\x01"
"""For the state of the cores; locations as text cost more."""


def measures(reply: bytes) -> list[Measurement]:
    """Return the values of a metric; `WireError` if *reply* is malformed."""
    found = []
    for metric in _Message(reply).parts(1):
        for measure in islice(metric.parts(3), _MOST_MEASURES):
            value = _value(measure)
            if value is not None:
                found.append(Measurement(_attributes(measure.parts(1)), value))
    return found


def names(reply: bytes) -> frozenset[str]:
    """Return the names of a list of metrics; `WireError` if *reply* is malformed."""
    return frozenset(metric.text(1) for metric in _Message(reply).parts(1))


def core_states(reply: bytes) -> list[CoreState]:
    """Return the state of each tensor core; `WireError` if *reply* is malformed."""
    return [
        found
        for entry in islice(_Message(reply).parts(2), _MOST_MEASURES)
        for state in entry.parts(2)
        if (found := _core_state(state)) is not None
    ]


class _Message(wire.Message):
    """A message whose integers are signed, and which may have doubles."""

    def parts(self, field: int) -> Iterator[_Message]:
        """Yield the messages in *field*."""
        return map(_Message, self.messages(field))

    def part(self, field: int) -> _Message | None:
        """Return the message in *field*, `None` without one."""
        return _Message(self.message(field)) if self.messages(field) else None

    def integer(self, field: int) -> int | None:
        """Return the integer in *field*, `None` without one."""
        found = [_signed(value) for value in self.all(field) if isinstance(value, int)]
        return found[-1] if found else None

    def doubles(self, field: int) -> list[float]:
        """Return the doubles in *field*. Raises `WireError`: it has other values."""
        found: list[float] = []
        for value in self.all(field):
            if isinstance(value, int) or len(value) % _DOUBLE.size:
                msg = f"field {field} is not a double or a list of doubles"
                raise WireError(msg)
            found += (double for (double,) in _DOUBLE.iter_unpack(value))
        return found

    def double(self, field: int) -> float | None:
        """Return the double in *field*, `None` without one."""
        found = self.doubles(field)
        return found[-1] if found else None


def _signed(value: int) -> int:
    return value - 2 * _SIGN if value >= _SIGN else value


def _attributes(messages: Iterable[_Message], depth: int = 0) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for attribute in messages:
        for value in attribute.parts(2):
            integer = value.integer(3)
            if integer is not None:
                found[attribute.text(1)] = integer
            elif value.all(1):
                found[attribute.text(1)] = value.text(1)
            elif depth < _MOST_DEPTH:
                for more in value.parts(6):
                    found |= _attributes(more.parts(1), depth + 1)
    return found


def _value(measure: _Message) -> float | BucketCounts | None:
    distribution = measure.part(5)
    if distribution is not None:
        return _distribution(distribution)
    gauge, counter = measure.part(3), measure.part(4)
    number = gauge or counter
    # A text is not a number, and neither is an empty measurement.
    if number is None or (gauge is not None and gauge.all(3)):
        return None
    found = number.double(1)
    if found is None:
        found = number.integer(2)
    if found is None:
        found = number.integer(4) if gauge is not None else None
    return found if found is not None and math.isfinite(found) else None


def _distribution(message: _Message) -> BucketCounts | None:
    count, mean = message.integer(1) or 0, message.double(2) or 0.0
    options = message.part(6)
    bounds = _bounds(options) if options is not None else ()
    counts = [_signed(count) for count in message.numbers(7)][: len(bounds) + 1]
    if count < 0 or mean < 0 or not math.isfinite(mean) or any(n < 0 for n in counts):
        return None
    return BucketCounts(count, mean, bounds, tuple(counts))


def _bounds(options: _Message) -> tuple[float, ...]:
    """Return the upper bounds of all buckets but the last, which are not in them."""
    found: list[float] = []
    exponential, explicit, linear = map(options.part, (2, 3, 4))
    if explicit is not None:
        found = explicit.doubles(1)[:_MOST_BOUNDS]
    elif exponential is not None:
        growth = exponential.double(2) or 0.0
        scale = exponential.double(3) or 0.0
        try:
            found = [scale * growth**step for step in _steps(exponential)]
        except OverflowError:
            return ()
    elif linear is not None:
        width, offset = linear.double(2) or 0.0, linear.double(3) or 0.0
        found = [offset + width * step for step in _steps(linear)]
    rising = all(low < high for low, high in pairwise(found))
    return tuple(found) if rising and all(map(math.isfinite, found)) else ()


def _steps(options: _Message) -> range:
    finite = options.integer(1) or 0
    return range(finite + 1) if 0 < finite < _MOST_BOUNDS else range(0)


def _core_state(state: _Message) -> CoreState | None:
    identity = state.part(1)
    on_chip = identity.part(3) if identity else None
    if identity is None or on_chip is None or on_chip.integer(1) != _TENSOR_CORE:
        return None
    sequencers = [
        sequencer
        for sequencer in state.parts(2)
        if sequencer.integer(1) == _TENSOR_CORE_SEQUENCER
    ]
    at = sequencers[0] if sequencers else _Message(b"")
    return CoreState(
        chip=identity.integer(2) or 0,
        core=on_chip.integer(2) or 0,
        program=at.integer(6),
        run=at.integer(7),
        counter=at.integer(3),
        location=at.text(8),
        queued=len(state.all(6)),
        error=state.text(7),
    )


Target: TypeAlias = "tuple[str, int] | str"
"""A host and a port, or the path of a Unix socket."""

Reply: TypeAlias = "bytes | GrpcFailure"

_UNAVAILABLE = "UNAVAILABLE"
_DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
# Status codes for data that a server does not have, now or ever.
_UNKNOWN = frozenset({"NOT_FOUND", "UNIMPLEMENTED", "INVALID_ARGUMENT"})

# Of one reply; the largest that a runtime has are some 10 KiB.
_MOST_BYTES = 1 << 20

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
class GrpcCall:
    """A request to *target*, of a method such as ``/package.Service/Method``."""

    target: Target
    method: str
    request: bytes


@dataclass(frozen=True, slots=True)
class GrpcFailure:
    """A call without a reply; *code* is the name of gRPC's status."""

    code: str

    @property
    def unknown(self) -> bool:
        """Whether the server lacks it, so that retrying is useless."""
        return self.code in _UNKNOWN

    @property
    def slow(self) -> bool:
        """Whether no reply arrived in time."""
        return self.code == _DEADLINE_EXCEEDED

    @property
    def is_absent(self) -> bool:
        """Whether nothing, or something else, is listening there."""
        return self.code == _UNAVAILABLE


SLOW = GrpcFailure(_DEADLINE_EXCEEDED)
GONE = GrpcFailure(_UNAVAILABLE)
# A message that was cut off, which grpcio returns as a success without one.
CUT_OFF = GrpcFailure("INTERNAL")


def call_all(calls: Sequence[GrpcCall], seconds: float) -> list[Reply]:
    """Send all *calls* concurrently; return the replies, within *seconds*."""
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
        return [_reply(grpc, future, end) for future in futures]


def _reply(grpc: Any, future: Any, end: float) -> Reply:
    try:
        error = future.exception(max(0.0, end - time.monotonic()))
    except grpc.FutureTimeoutError:
        return SLOW
    if error is not None:
        return GrpcFailure(error.code().name)
    reply: bytes | None = future.result()
    return CUT_OFF if reply is None else reply


def _url(target: Target) -> str:
    if isinstance(target, str):
        return f"unix:{quote(os.fsencode(target))}"
    host, port = target
    name = quote(os.fsencode(host), safe=":")
    return f"dns:///[{name}]:{port}" if ":" in host else f"dns:///{name}:{port}"
