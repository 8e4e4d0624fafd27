"""One poll of a TPU runtime: metrics by name, and core states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jaxmon_exporter.collectors.tpu.messages import (
    LONGEST_NAME,
    BucketCounts,
    CoreState,
    Measurement,
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


# Of the process, not of a chip.
COLLECTIVE = _latencies("collective_end_to_end")
DCN_SENT = _latencies("dcn_transfer")
DCN_RECEIVED = _latencies("dcn_inbound_transfer")
TO_HOST = _latencies("device_to_host_transfer")
FROM_HOST = _latencies("host_to_device_transfer")
BYTES_SENT = "megascale.grpc_tcp_bytes_sent.cumulative.count"
BYTES_SENT_AGAIN = "megascale.grpc_tcp_bytes_retransmitted.cumulative.count"
ERRORS = "megascale.error_count"

NAMES = (
    MEMORY_TOTAL,
    MEMORY_USED,
    DUTY_CYCLE,
    BANDWIDTH,
    IDLE,
    QUEUE,
    EXECUTION,
    UPTIME,
    COLLECTIVE,
    DCN_SENT,
    DCN_RECEIVED,
    TO_HOST,
    FROM_HOST,
    BYTES_SENT,
    BYTES_SENT_AGAIN,
    ERRORS,
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
    """
    Data of one runtime from one poll.

    Args:
        runtime: value of the label.
        measures: by name of the metric.
        states: of its cores.
    """

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
