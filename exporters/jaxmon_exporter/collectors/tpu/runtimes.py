"""Polls this host's TPU runtimes: all processes concurrently, with one deadline."""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from errno import EAGAIN
from typing import Any, NamedTuple

from jaxmon import catalog
from jaxmon.errors import WireError
from jaxmon.exposition.families import Family, by_label
from jaxmon.host import tpus
from jaxmon_exporter.collectors.tpu import messages as tpu_messages
from jaxmon_exporter.collectors.tpu.messages import (
    GONE,
    LONGEST_NAME,
    SLOW,
    BucketCounts,
    CoreState,
    GrpcCall,
    GrpcFailure,
    Measurement,
    Reply,
    Target,
    call_all,
)


MEMORY_TOTAL = "tpu.runtime.hbm.memory.total.bytes"
MEMORY_USED = "tpu.runtime.hbm.memory.usage.bytes"
DUTY_CYCLE = "tpu.runtime.tensorcore.dutycycle.percent"
BANDWIDTH = "tpu.runtime.hbm.utilization.percent"
IDLE = "tpu.runtime.tensorcore.idle_duration.seconds"
QUEUE = "hlo.queue.size.gauge"
EXECUTION = "hlo.execution.timing.distribution.microseconds"
UPTIME = "tpu.runtime.uptime.seconds.gauge"


def _latencies(of: str) -> str:
    return f"megascale.{of}_latencies.microsecond.cumulative.distribution"


# Of a process, not of a chip: metric, further labels, name at the runtime.
LATENCIES = (
    (catalog.TPU_COLLECTIVE_SECONDS, (), _latencies("collective_end_to_end")),
    *(
        (catalog.TPU_TRANSFER_SECONDS, (direction,), _latencies(name))
        for direction, name in (
            ("dcn_transmit", "dcn_transfer"),
            ("dcn_receive", "dcn_inbound_transfer"),
            ("device_to_host", "device_to_host_transfer"),
            ("host_to_device", "host_to_device_transfer"),
        )
    ),
)
BYTES_SENT_AGAIN = "megascale.grpc_tcp_bytes_retransmitted.cumulative.count"
COUNTERS = {
    catalog.TPU_DCN_TRANSMIT_BYTES: "megascale.grpc_tcp_bytes_sent.cumulative.count",
    catalog.TPU_DCN_RETRANSMIT_BYTES: BYTES_SENT_AGAIN,
    catalog.TPU_MEGASCALE_ERRORS: "megascale.error_count",
}
NAMES = (
    *(MEMORY_TOTAL, MEMORY_USED, DUTY_CYCLE, BANDWIDTH, IDLE, QUEUE, EXECUTION, UPTIME),
    *(*(name for _, _, name in LATENCIES), *COUNTERS.values()),
)
"""Requested from every runtime, until it reports that it has no such metric."""

# Google's library has these; a runtime's own list has its names for them.
LINK_HEALTH = "ici_link_health"
THROTTLE_SCORE = "throttle_score"

_MOST_FURTHER = 8
_TENSOR_CORE = "TENSOR_CORE"


def further_names(listed: Iterable[str]) -> list[str]:
    """Return further useful names from a runtime's own list."""
    wanted = (LINK_HEALTH, THROTTLE_SCORE)
    found = (name for name in listed if any(part in name for part in wanted))
    fitting = (name for name in found if len(name.encode()) <= LONGEST_NAME)
    return sorted(fitting)[:_MOST_FURTHER]


@dataclass(slots=True)
class RuntimeReading:
    """Data of one *runtime* from one poll: by name of the metric, and of its cores."""

    runtime: str
    measures: dict[str, list[Measurement]] = field(default_factory=dict)
    states: list[CoreState] = field(default_factory=list)

    def count_cores(self) -> int:
        """Return the number of cores that report their memory."""
        return len(self.numbers(MEMORY_TOTAL))

    def count_chips(self) -> int:
        """Return the number of chips, or cores, that report their duty cycle."""
        return len(self.numbers(DUTY_CYCLE))

    def numbers(self, name: str) -> dict[int, float]:
        """Return the numbers of a metric by device."""
        return {
            measure.device: measure.value
            for measure in self.measures.get(name, ())
            if measure.device is not None
            and not isinstance(measure.value, BucketCounts)
            and _on_tensor_core(measure)
        }

    def distributions(self, name: str) -> list[tuple[int | None, BucketCounts]]:
        """Return the distributions of a metric, with their devices."""
        return [
            (measure.device, measure.value)
            for measure in self.measures.get(name, ())
            if isinstance(measure.value, BucketCounts) and _on_tensor_core(measure)
        ]

    def values(self, name: str) -> list[float]:
        """Return all numbers of a metric, whatever they belong to."""
        return [
            measure.value
            for measure in self.measures.get(name, ())
            if not isinstance(measure.value, BucketCounts)
        ]


def _on_tensor_core(measure: Measurement) -> bool:
    kind = measure.attributes.get("core_type", _TENSOR_CORE)
    return kind == _TENSOR_CORE


DEFAULT_PORT = 8431
PROBED_PORTS = range(DEFAULT_PORT, DEFAULT_PORT + 8)

_HERE = "127.0.0.1"
_MOST_ADDRESSES = 16
_HIGHEST_PORT = 65535


class Address(NamedTuple):
    """Where a process may serve; the name is the port, or the socket's file."""

    name: str
    target: Target


def addresses(environ: Mapping[str, str]) -> tuple[list[Address], bool]:
    """Return the addresses of runtimes, and whether libtpu's variables set them."""
    if text := environ.get(tpus.ADDRESS, "").strip():
        return [_address(text)], True
    if (listed := environ.get(tpus.PORTS)) is not None:
        return [_local(port) for port in _ports(listed)], True
    if ports := _ports(environ.get(tpus.PRIMARY_PORT, "")):
        return [_local(port) for port in ports], True
    return [_local(port) for port in PROBED_PORTS], False


def _ports(text: str) -> list[int]:
    found = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    right = dict.fromkeys(port for port in found if 0 < port <= _HIGHEST_PORT)
    return list(right)[:_MOST_ADDRESSES]


def _local(port: int) -> Address:
    return Address(str(port), (_HERE, port))


def _address(text: str) -> Address:
    path = text.removeprefix("unix://").removeprefix("unix:")
    host, _, port = text.rpartition(":")
    if path != text or "/" in text or not (ports := _ports(port)):
        return Address(path.rpartition("/")[2], path)
    host = host.strip("[]")
    # A wildcard address of a server cannot be connected to.
    if host in ("", "localhost", "0.0.0.0"):  # noqa: S104 - nothing is bound
        host = _HERE
    elif host == "::":
        host = "::1"
    return Address(port, (host, ports[0]))


# On the same host a port accepts or refuses immediately.
_CONNECT_SECONDS = 0.2


def unreachable(targets: Iterable[Target]) -> dict[Target, GrpcFailure]:
    """Return the *targets* where nothing is listening, and why."""
    found: dict[Target, GrpcFailure] = {}
    end = time.monotonic() + _CONNECT_SECONDS
    for target in targets:
        try:
            family, address = _socket_address(target)
        except (OSError, UnicodeError):
            continue
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.settimeout(max(end - time.monotonic(), 0.0))
                probe.connect(address)
        except BlockingIOError as error:  # of a Unix socket the queue may be full
            if error.errno == EAGAIN:
                found[target] = SLOW
        except TimeoutError:
            continue
        except OSError:  # also a path that is too long
            found[target] = GONE
    return found


def _socket_address(target: Target) -> tuple[int, Any]:
    """Return family and address of *target*; raises if it has a host name."""
    if isinstance(target, str):
        return socket.AF_UNIX, target
    host, port = target
    found = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )
    return found[0][0], found[0][4]


log = logging.getLogger("jaxmon.exporter")

_SECONDS = 1.5  # for the replies of all runtimes together


@dataclass(slots=True)
class _Runtime:
    """The runtime at an address: *up* while it responds, *met* if it ever has."""

    address: Address
    up: bool = False
    slow: bool = False
    met: bool = False
    further: list[str] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    uptime: float = 0.0

    @property
    def name(self) -> str:
        return self.address.name

    def call(self, method: str, request: bytes) -> GrpcCall:
        return GrpcCall(self.address.target, method, request)

    def names(self) -> list[str]:
        """Return the requests to send."""
        return [name for name in (*NAMES, *self.further) if name not in self.unknown]

    def renew(self) -> None:
        """Forget what it could not do: it is another one, or may be."""
        self.unknown.clear()
        self.uptime = 0.0


class Runtimes:
    """Reads all runtimes, at addresses that may be *configured*; counts *failures*."""

    def __init__(
        self, addresses: Sequence[Address], *, configured: bool, failures: Counter[str]
    ) -> None:
        self._runtimes = [_Runtime(address) for address in addresses]
        self._configured = configured
        self._failures = failures

    def read(self) -> list[RuntimeReading]:
        """Query all runtimes, after probing those not known to be up."""
        before = {runtime.name for runtime in self._runtimes if runtime.up}
        self._probe([runtime for runtime in self._runtimes if not runtime.up])
        up = [runtime for runtime in self._runtimes if runtime.up]
        # Several processes each report their own; a single one reports for all. One
        # that hangs is not queried again: that would hang as well.
        there = [of for of in self._runtimes if of.slow or (of.up and of.met)]
        status, request = tpu_messages.STATUS, tpu_messages.STATUS_REQUEST
        asked = []
        for runtime in up:
            for name in runtime.names():
                wanted = tpu_messages.metric_request(name, single=len(there) > 1)
                asked.append((runtime, name, tpu_messages.METRIC, wanted))
            if status not in runtime.unknown:
                asked.append((runtime, status, status, request))
        calls = [runtime.call(method, wanted) for runtime, _, method, wanted in asked]
        readings = {runtime.name: RuntimeReading(runtime.name) for runtime in up}
        replies: dict[str, list[Reply]] = {runtime.name: [] for runtime in up}
        for (runtime, name, *_), reply in zip(
            asked, call_all(calls, _SECONDS), strict=True
        ):
            replies[runtime.name].append(reply)
            self._take(runtime, readings[runtime.name], name, reply)
        for runtime in up:
            self._judge(runtime, readings[runtime.name], replies[runtime.name])
            if runtime.name in before and not runtime.up:
                log.info("TPU runtime %s no longer responds", runtime.name)
        return [readings[runtime.name] for runtime in up if runtime.up]

    def up(self) -> Family:
        """Return which runtimes are up: those that ever responded, or the usual one."""
        listed = [of for of in self._runtimes if of.met or self._configured]
        shown = listed or self._runtimes[:1]
        return by_label(catalog.TPU_RUNTIME_UP, {of.name: float(of.up) for of in shown})

    def locations(self, names: Iterable[str]) -> dict[tuple[str, int, int], str]:
        """Return the position of each core of the runtimes *names*."""
        wanted = set(names)
        asked = [runtime for runtime in self._runtimes if runtime.name in wanted]
        call = tpu_messages.STATUS, tpu_messages.STATUS_WITH_LOCATIONS
        replies = call_all([runtime.call(*call) for runtime in asked], _SECONDS)
        found: dict[tuple[str, int, int], str] = {}
        for runtime, reply in zip(asked, replies, strict=True):
            reading = RuntimeReading(runtime.name)
            self._take(runtime, reading, tpu_messages.STATUS, reply)
            for state in reading.states:
                found[runtime.name, state.chip, state.core] = state.location
        return found

    def _probe(self, silent: Sequence[_Runtime]) -> None:
        replies: dict[Target, Reply] = {
            **unreachable(runtime.address.target for runtime in silent)
        }
        request = tpu_messages.LIST_REQUEST
        calls = [
            runtime.call(tpu_messages.NAMES, request)
            for runtime in silent
            if runtime.address.target not in replies
        ]
        for call, reply in zip(calls, call_all(calls, _SECONDS), strict=True):
            replies[call.target] = reply
        for runtime in silent:
            reply = replies[runtime.address.target]
            runtime.renew()
            runtime.slow = isinstance(reply, GrpcFailure) and reply.slow
            if runtime.slow:
                self._failures["runtime_slow"] += 1
            elif isinstance(reply, bytes):
                runtime.up = runtime.met = True
                try:
                    runtime.further = further_names(tpu_messages.names(reply))
                except WireError:
                    self._failures["bad_reply"] += 1
            elif reply.unknown:
                # An old one, that has no list; or a web server, see `_judge`.
                runtime.up = True

    def _take(
        self, runtime: _Runtime, reading: RuntimeReading, name: str, reply: Reply
    ) -> None:
        """Put a reply about *name* into *reading*, or take note of a failure."""
        if isinstance(reply, bytes):
            try:
                if name == tpu_messages.STATUS:
                    reading.states = tpu_messages.core_states(reply)
                else:
                    reading.measures[name] = tpu_messages.measures(reply)
            except WireError:
                self._failures["bad_reply"] += 1
        elif reply.unknown:
            log.debug("TPU runtime %s has no %s: %s", runtime.name, name, reply.code)
            runtime.unknown.add(name)
        elif reply.slow:
            # Not absent: other replies may come, and are what one wants to see now.
            self._failures["runtime_slow"] += 1
        elif reply.is_absent:
            runtime.up = False
        else:
            self._failures["request_failed"] += 1

    def _judge(
        self, runtime: _Runtime, reading: RuntimeReading, replies: Sequence[Reply]
    ) -> None:
        uptime = max(reading.values(UPTIME), default=0.0)
        if uptime < runtime.uptime:
            runtime.renew()
        runtime.uptime = uptime
        failures = [reply for reply in replies if isinstance(reply, GrpcFailure)]
        answered = len(failures) < len(replies)
        runtime.met = runtime.met or answered
        runtime.slow = not answered and all(failure.slow for failure in failures)
        runtime.up = runtime.up and answered
