"""
What runtimes of TPUs tell, as families.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean
from typing import TypeVar

from jaxmon.catalog import (
    ACCELERATOR_MEMORY_BANDWIDTH_RATIO,
    ACCELERATOR_MEMORY_SIZE_BYTES,
    ACCELERATOR_MEMORY_USED_BYTES,
    ACCELERATOR_UTILIZATION_RATIO,
    TPU_COLLECTIVE_SECONDS,
    TPU_CORE_ERROR,
    TPU_CORE_IDLE_SECONDS,
    TPU_CORE_PROGRAM_ID,
    TPU_CORE_PROGRAM_POSITION,
    TPU_CORE_QUEUED_PROGRAMS,
    TPU_CORE_RUN_ID,
    TPU_DCN_RETRANSMIT_BYTES,
    TPU_DCN_TRANSMIT_BYTES,
    TPU_DUTY_CYCLE_RATIO,
    TPU_HLO_EXECUTION_SECONDS,
    TPU_HLO_QUEUE_SIZE,
    TPU_ICI_LINK_HEALTH,
    TPU_MEGASCALE_ERRORS,
    TPU_RUNTIME_UPTIME_SECONDS,
    TPU_THROTTLE_SCORE,
    TPU_TRANSFER_SECONDS,
    Metric,
)
from jaxmon.exposition.families import Family, Sample, labels_text, series
from jaxmon_exporter.collectors import tpu_places
from jaxmon_exporter.collectors.tpu_messages import CoreState, Distribution, Measure
from jaxmon_exporter.collectors.tpu_places import Key, Place


T = TypeVar("T")

_MEMORY_TOTAL = "tpu.runtime.hbm.memory.total.bytes"
_MEMORY_USED = "tpu.runtime.hbm.memory.usage.bytes"
_DUTY_CYCLE = "tpu.runtime.tensorcore.dutycycle.percent"
_BANDWIDTH = "tpu.runtime.hbm.utilization.percent"
_IDLE = "tpu.runtime.tensorcore.idle_duration.seconds"
_QUEUE = "hlo.queue.size.gauge"
_EXECUTION = "hlo.execution.timing.distribution.microseconds"
UPTIME = "tpu.runtime.uptime.seconds.gauge"

# Of a process, not of a chip: metric, further labels, names of the runtime.
_LATENCIES = (
    (TPU_COLLECTIVE_SECONDS, (), "collective_end_to_end"),
    (TPU_TRANSFER_SECONDS, ("dcn_transmit",), "dcn_transfer"),
    (TPU_TRANSFER_SECONDS, ("dcn_receive",), "dcn_inbound_transfer"),
    (TPU_TRANSFER_SECONDS, ("device_to_host",), "device_to_host_transfer"),
    (TPU_TRANSFER_SECONDS, ("host_to_device",), "host_to_device_transfer"),
)
_COUNTERS = (
    (TPU_DCN_TRANSMIT_BYTES, "megascale.grpc_tcp_bytes_sent.cumulative.count"),
    (
        TPU_DCN_RETRANSMIT_BYTES,
        "megascale.grpc_tcp_bytes_retransmitted.cumulative.count",
    ),
    (TPU_MEGASCALE_ERRORS, "megascale.error_count"),
)
# Google's library tells these; by which name a runtime does, its own list says.
_WORST = (
    (TPU_ICI_LINK_HEALTH, "ici_link_health"),
    (TPU_THROTTLE_SCORE, "throttle_score"),
)

_PERCENT = 100
_MICROSECONDS = 1e6
_TENSOR_CORE = "TENSOR_CORE"
# Beyond this a float no longer tells neighbours apart.
_EXACT = (1 << 53) - 1


def _latency(stem: str) -> str:
    return f"megascale.{stem}_latencies.microsecond.cumulative.distribution"


NAMES = (
    _MEMORY_TOTAL,
    _MEMORY_USED,
    _DUTY_CYCLE,
    _BANDWIDTH,
    _IDLE,
    _QUEUE,
    _EXECUTION,
    UPTIME,
    *(_latency(stem) for _, _, stem in _LATENCIES),
    *(name for _, name in _COUNTERS),
)
"""What every runtime is asked for, until it says that it has no such metric."""


def further_names(listed: Iterable[str]) -> list[str]:
    """
    Return names out of a runtime's own list that are of use, too.
    """
    parts = [part for _, part in _WORST]
    return sorted(name for name in listed if any(part in name for part in parts))[:8]


@dataclass(slots=True)
class Reading:
    """
    What one runtime told in one poll.

    Args:
        runtime: value of the label.
        measures: by name of the metric.
        states: of its cores.
    """

    runtime: str
    measures: dict[str, list[Measure]] = field(default_factory=dict)
    states: list[CoreState] = field(default_factory=list)

    def count_cores(self) -> int:
        """
        Return how many cores tell their memory.
        """
        return len(self.numbers(_MEMORY_TOTAL))

    def count_chips(self) -> int:
        """
        Return how many chips, or cores, tell their duty cycle.
        """
        return len(self.numbers(_DUTY_CYCLE))

    def numbers(self, name: str) -> dict[int, float]:
        """
        Return the numbers of a metric by device.
        """
        return {
            measure.device: measure.value
            for measure in self.measures.get(name, ())
            if measure.device is not None
            and not isinstance(measure.value, Distribution)
            and _on_tensor_core(measure)
        }

    def distributions(self, name: str) -> list[tuple[int | None, Distribution]]:
        """
        Return the distributions of a metric, with their devices.
        """
        return [
            (measure.device, measure.value)
            for measure in self.measures.get(name, ())
            if isinstance(measure.value, Distribution) and _on_tensor_core(measure)
        ]

    def values(self, name: str) -> list[float]:
        """
        Return all numbers of a metric, whatever they belong to.
        """
        return [
            measure.value
            for measure in self.measures.get(name, ())
            if not isinstance(measure.value, Distribution)
        ]


class Figures:
    """
    The families of one poll.

    Args:
        uuids: of the chips, in order.
        per_chip: cores of a chip.
        readings: of the runtimes that answered, in order.
        failures: counts what could not be told apart.
    """

    def __init__(
        self,
        uuids: Sequence[str],
        per_chip: int,
        readings: Sequence[Reading],
        failures: Counter[str],
    ) -> None:
        self._uuids = uuids
        self._per_chip = per_chip
        self._readings = readings
        self._failures = failures

    def families(self) -> Iterator[Family]:
        """
        Yield everything that the runtimes told.
        """
        yield from self._memory()
        yield from self._shares()
        yield from self._queues()
        yield self._executions()
        yield from self._processes()
        yield from self._states()

    def states(self) -> Iterator[tuple[str, int, str, CoreState]]:
        """
        Yield uuid, core, runtime and state of each tensor core.
        """
        keys = [
            (one.runtime, state.chip) for one in self._readings for state in one.states
        ]
        chips = self._complete(keys, tpu_places.numbered(keys, len(self._uuids)))
        for reading in self._readings:
            for state in reading.states:
                chip = chips.get((reading.runtime, state.chip))
                if chip is not None and 0 <= state.core < self._per_chip:
                    yield self._uuids[chip], state.core, reading.runtime, state

    def _memory(self) -> Iterator[Family]:
        """
        Yield size and use by chip, where all of its cores are told.
        """
        for metric, name in (
            (ACCELERATOR_MEMORY_SIZE_BYTES, _MEMORY_TOTAL),
            (ACCELERATOR_MEMORY_USED_BYTES, _MEMORY_USED),
        ):
            chips: dict[int, list[float]] = defaultdict(list)
            for place, value in self._by_core(name):
                chips[place.chip].append(value)
            whole = {
                chip: sum(values)
                for chip, values in chips.items()
                if len(values) == self._per_chip
            }
            yield self._chip_family(metric, whole)

    def _shares(self) -> Iterator[Family]:
        duty = self._by_chip(_DUTY_CYCLE)
        yield self._chip_family(TPU_DUTY_CYCLE_RATIO, duty)
        yield self._chip_family(ACCELERATOR_UTILIZATION_RATIO, duty)
        bandwidth = self._by_chip(_BANDWIDTH)
        yield self._chip_family(ACCELERATOR_MEMORY_BANDWIDTH_RATIO, bandwidth)

    def _queues(self) -> Iterator[Family]:
        for metric, name in (
            (TPU_HLO_QUEUE_SIZE, _QUEUE),
            (TPU_CORE_IDLE_SECONDS, _IDLE),
        ):
            yield Family(
                metric,
                [
                    (series(metric, self._uuids[place.chip], place.core), value)
                    for place, value in sorted(self._by_core(name))
                ],
            )

    def _executions(self) -> Family:
        found: dict[Key, list[Distribution]] = defaultdict(list)
        for reading in self._readings:
            for device, distribution in reading.distributions(_EXECUTION):
                if device is not None:
                    found[reading.runtime, device].append(distribution)
        places = self._placed(found)
        samples: list[Sample] = []
        for key, place in sorted(places.items(), key=lambda item: item[1]):
            labels = (self._uuids[place.chip], str(place.core))
            samples += histogram(TPU_HLO_EXECUTION_SECONDS, labels, found[key])
        return Family(TPU_HLO_EXECUTION_SECONDS, samples)

    def _processes(self) -> Iterator[Family]:
        """
        Yield what belongs to a process rather than to a chip.
        """
        for reading in self._readings:
            runtime = reading.runtime
            for metric, labels, stem in _LATENCIES:
                told = [one for _, one in reading.distributions(_latency(stem))]
                # Sizes of buffers are apart there; their sum is exact.
                yield Family(metric, histogram(metric, (runtime, *labels), told))
            for metric, name in _COUNTERS:
                yield _of_runtime(metric, runtime, reading.values(name), sum)
            yield _of_runtime(
                TPU_RUNTIME_UPTIME_SECONDS, runtime, reading.values(UPTIME), max
            )
            for metric, part in _WORST:
                values = [
                    value
                    for name in reading.measures
                    if part in name
                    for value in reading.values(name)
                ]
                yield _of_runtime(metric, runtime, values, max)

    def _states(self) -> Iterator[Family]:
        for uuid, core, _, state in self.states():
            for metric, value in (
                (TPU_CORE_QUEUED_PROGRAMS, state.queued),
                (TPU_CORE_PROGRAM_ID, state.program),
                (TPU_CORE_RUN_ID, state.run),
                (TPU_CORE_PROGRAM_POSITION, state.counter),
                (TPU_CORE_ERROR, int(bool(state.error))),
            ):
                if value is not None:
                    yield Family(metric, [(series(metric, uuid, core), value & _EXACT)])

    def _by_core(self, name: str) -> list[tuple[Place, float]]:
        """
        Return a metric that numbers cores.
        """
        told = {
            (reading.runtime, device): value
            for reading in self._readings
            for device, value in reading.numbers(name).items()
        }
        return [(place, told[key]) for key, place in self._placed(told).items()]

    def _by_chip(self, name: str) -> dict[int, float]:
        """
        Return shares of a metric that has a value for each chip, or for each core.
        """
        chips: dict[int, list[float]] = defaultdict(list)
        for reading in self._readings:
            places = self._held_by(reading.runtime)
            for place, percent in tpu_places.spread(
                reading.numbers(name), places, self._per_chip
            ):
                chips[place.chip].append(percent / _PERCENT)
        return {chip: fmean(shares) for chip, shares in chips.items()}

    def _held_by(self, runtime: str) -> list[Place]:
        """
        Return the cores that a process holds: those whose memory it tells.
        """
        keys = [
            (reading.runtime, device)
            for reading in self._readings
            for device in reading.numbers(_MEMORY_TOTAL)
        ]
        placed = self._placed(keys)
        return [place for (one, _), place in placed.items() if one == runtime]

    def _placed(self, keys: Iterable[Key]) -> dict[Key, Place]:
        known = list(keys)
        return self._complete(
            known, tpu_places.cores(known, len(self._uuids), self._per_chip)
        )

    def _complete(self, keys: Sequence[Key], placed: dict[Key, T]) -> dict[Key, T]:
        if keys and not placed:
            self._failures["device_unplaced"] += 1
        return placed

    def _chip_family(self, metric: Metric, values: Mapping[int, float]) -> Family:
        return Family(
            metric,
            [
                (series(metric, self._uuids[chip]), values[chip])
                for chip in sorted(values)
            ],
        )


def histogram(
    metric: Metric, labels: Sequence[str], told: Sequence[Distribution]
) -> list[Sample]:
    """
    Return the series of a histogram in seconds; *told* is in microseconds.

    Its bounds are bounds of the runtime, so that all counts are exact: for each
    bucket of *metric* the lowest one that is not below it.
    """
    if not told:
        return []
    count = sum(one.count for one in told)
    text = labels_text(metric.labels, labels)
    samples: list[Sample] = []
    bounds = told[0].bounds
    if all(one.bounds == bounds for one in told):
        counts = [0] * (len(bounds) + 1)
        for one in told:
            for index, some in enumerate(one.counts):
                counts[index] += some
        running = list(accumulate(counts))
        count = max(count, running[-1])
        for bound, below in _kept(metric.buckets, bounds, running):
            samples.append((f'{metric.name}_bucket{{{text},le="{bound}"}}', below))
    seconds = sum(one.mean * one.count for one in told) / _MICROSECONDS
    return [
        *samples,
        (f'{metric.name}_bucket{{{text},le="+Inf"}}', count),
        (f"{metric.name}_sum{{{text}}}", seconds),
        (f"{metric.name}_count{{{text}}}", count),
    ]


def _kept(
    wanted: Sequence[float], bounds: Sequence[float], running: Sequence[int]
) -> Iterator[tuple[float, int]]:
    """
    Yield bound, in seconds, and number of observations below it.
    """
    # Six digits: the name of a series must not depend on how a float rounds.
    seconds = [float(f"{bound / _MICROSECONDS:.6g}") for bound in bounds]
    chosen = {
        next((index for index, bound in enumerate(seconds) if bound >= want), None)
        for want in wanted
    }
    for index in sorted(index for index in chosen if index is not None):
        yield seconds[index], running[index]


def _of_runtime(
    metric: Metric,
    runtime: str,
    values: Sequence[float],
    together: Callable[[Sequence[float]], float],
) -> Family:
    if not values:
        return Family(metric)
    return Family(metric, [(series(metric, runtime), together(values))])


def _on_tensor_core(measure: Measure) -> bool:
    kind = measure.attributes.get("core_type", _TENSOR_CORE)
    return kind == _TENSOR_CORE
