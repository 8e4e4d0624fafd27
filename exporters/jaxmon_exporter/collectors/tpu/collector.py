"""
TPUs: chips from the PCI bus, metrics from the runtimes of the processes that use them.

Chips without a process are idle, and a process without a server exports nothing:
neither is a failure of the collector.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import fsum
from pathlib import Path
from typing import TypeAlias, TypeVar

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, Sample, by_label, gauge, labels_text
from jaxmon.host import tpus
from jaxmon.host.tpus import Chip
from jaxmon_exporter import polling
from jaxmon_exporter.collectors.tpu import runtimes as tpu_reading
from jaxmon_exporter.collectors.tpu.messages import BucketCounts, CoreState
from jaxmon_exporter.collectors.tpu.runtimes import RuntimeReading, Runtimes


T = TypeVar("T")

Key: TypeAlias = "tuple[str, int]"
"""Name of a runtime, and a number that it uses."""


@dataclass(frozen=True, slots=True, order=True)
class CorePlace:
    """A core of a chip, which has an index among those of the host."""

    chip: int
    core: int


def numbered(keys: Iterable[Key], total: int) -> dict[Key, int]:
    """Return which of *total* cores or chips *keys* mean; empty if ambiguous."""
    distinct = list(dict.fromkeys(keys))
    numbers = [number for _, number in distinct]
    if not distinct or total < 1 or min(numbers) < 0:
        return {}
    if len(set(numbers)) == len(distinct):
        # One numbering for all processes, which continues from host to host.
        local = {key: key[1] % total for key in distinct}
        return local if len(set(local.values())) == len(distinct) else {}
    if len(distinct) != total:
        return {}
    # Each process counts for itself: they follow each other as their ports do.
    order = {runtime: index for index, (runtime, _) in enumerate(reversed(distinct))}
    ranked = sorted(distinct, key=lambda key: (-order[key[0]], key[1]))
    return {key: index for index, key in enumerate(ranked)}


def cores(keys: Iterable[Key], chips: int, per_chip: int) -> dict[Key, CorePlace]:
    """Return the place of each core that *keys* number."""
    return {
        key: CorePlace(*divmod(number, per_chip))
        for key, number in numbered(keys, chips * per_chip).items()
    }


def spread(
    values: Mapping[int, T], places: Sequence[CorePlace], per_chip: int
) -> list[tuple[CorePlace, T]]:
    """Return the value at each of *places*, whether they are by core or by chip."""
    ordered = [values[number] for number in sorted(values)]
    at = sorted(places)
    if len(ordered) * per_chip == len(at):
        ordered = [value for value in ordered for _ in range(per_chip)]
    if len(ordered) != len(at):
        return []
    return list(zip(at, ordered, strict=True))


_QUEUES = (
    (catalog.TPU_HLO_QUEUE_SIZE, tpu_reading.QUEUE),
    (catalog.TPU_CORE_IDLE_SECONDS, tpu_reading.IDLE),
)
_WORST = (
    (catalog.TPU_ICI_LINK_HEALTH, tpu_reading.LINK_HEALTH),
    (catalog.TPU_THROTTLE_SCORE, tpu_reading.THROTTLE_SCORE),
)

_PERCENT = 100
_MICROSECONDS = 1e6
# Beyond this, a float cannot represent every integer.
_EXACT = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class Figures:
    """The families of one poll, of chips with these *uuids*, in order."""

    uuids: Sequence[str]
    per_chip: int
    readings: Sequence[RuntimeReading]
    failures: Counter[str]

    def families(self) -> Iterator[Family]:
        """Yield all data of the runtimes."""
        yield from self._memory()
        duty = self._by_chip(tpu_reading.DUTY_CYCLE)
        bandwidth = self._by_chip(tpu_reading.BANDWIDTH)
        yield self._chip_family(catalog.TPU_DUTY_CYCLE_RATIO, duty)
        yield self._chip_family(catalog.ACCELERATOR_UTILIZATION_RATIO, duty)
        yield self._chip_family(catalog.ACCELERATOR_MEMORY_BANDWIDTH_RATIO, bandwidth)
        for metric, name in _QUEUES:
            found = {
                (self.uuids[place.chip], place.core): value
                for place, value in sorted(self._by_core(name))
            }
            yield by_label(metric, found)
        yield self._executions()
        yield from self._processes()
        yield from self._states()

    def states(self) -> Iterator[tuple[str, int, str, CoreState]]:
        """Yield uuid, core, runtime and state of each tensor core, once."""
        reported: set[tuple[int, int]] = set()
        keys = [
            (reading.runtime, state.chip)
            for reading in self.readings
            for state in reading.states
        ]
        chips = self._complete(keys, numbered(keys, len(self.uuids)))
        for reading in self.readings:
            for state in reading.states:
                chip = chips.get((reading.runtime, state.chip))
                if chip is None or not 0 <= state.core < self.per_chip:
                    continue
                if (chip, state.core) not in reported:
                    reported.add((chip, state.core))
                    yield self.uuids[chip], state.core, reading.runtime, state

    def _memory(self) -> Iterator[Family]:
        """Yield size and use by chip, if all of its cores are reported."""
        for metric, name in (
            (catalog.ACCELERATOR_MEMORY_SIZE_BYTES, tpu_reading.MEMORY_TOTAL),
            (catalog.ACCELERATOR_MEMORY_USED_BYTES, tpu_reading.MEMORY_USED),
        ):
            chips: dict[int, list[float]] = defaultdict(list)
            for place, value in self._by_core(name):
                chips[place.chip].append(value)
            whole = {
                chip: sum(values)
                for chip, values in chips.items()
                if len(values) == self.per_chip
            }
            yield self._chip_family(metric, whole)

    def _executions(self) -> Family:
        found: dict[Key, list[BucketCounts]] = defaultdict(list)
        for reading in self.readings:
            for device, distribution in reading.distributions(tpu_reading.EXECUTION):
                if device is not None:
                    found[reading.runtime, device].append(distribution)
        places = self._placed(found)
        samples: list[Sample] = []
        for key, place in sorted(places.items(), key=lambda item: item[1]):
            labels = (self.uuids[place.chip], str(place.core))
            samples += _histogram(catalog.TPU_HLO_EXECUTION_SECONDS, labels, found[key])
        return Family(catalog.TPU_HLO_EXECUTION_SECONDS, samples)

    def _processes(self) -> Iterator[Family]:
        for reading in self.readings:
            runtime = reading.runtime
            for metric, labels, name in tpu_reading.LATENCIES:
                # Sizes of buffers are apart there; their sum is exact.
                reported = [counted for _, counted in reading.distributions(name)]
                yield Family(metric, _histogram(metric, (runtime, *labels), reported))
            for metric, name in tpu_reading.COUNTERS.items():
                yield _of_runtime(metric, runtime, reading.values(name), sum)
            uptimes = reading.values(tpu_reading.UPTIME)
            yield _of_runtime(catalog.TPU_RUNTIME_UPTIME_SECONDS, runtime, uptimes, max)
            for metric, part in _WORST:
                values = []
                for name in reading.measures:
                    values += reading.values(name) if part in name else []
                yield _of_runtime(metric, runtime, values, max)

    def _states(self) -> Iterator[Family]:
        for uuid, core, _, state in self.states():
            for metric, value in (
                (catalog.TPU_CORE_QUEUED_PROGRAMS, state.queued),
                (catalog.TPU_CORE_PROGRAM_ID, state.program),
                (catalog.TPU_CORE_RUN_ID, state.run),
                (catalog.TPU_CORE_PROGRAM_POSITION, state.counter),
                (catalog.TPU_CORE_ERROR, int(bool(state.error))),
            ):
                if value is not None:
                    yield gauge(metric, value & _EXACT, uuid, core)

    def _by_core(self, name: str) -> list[tuple[CorePlace, float]]:
        reported = {
            (reading.runtime, device): value
            for reading in self.readings
            for device, value in reading.numbers(name).items()
        }
        return [(place, reported[key]) for key, place in self._placed(reported).items()]

    def _by_chip(self, name: str) -> dict[int, float]:
        chips: dict[int, list[float]] = defaultdict(list)
        for reading in self.readings:
            places = self._held_by(reading.runtime)
            for place, percent in spread(reading.numbers(name), places, self.per_chip):
                chips[place.chip].append(percent / _PERCENT)
        return {chip: fsum(shares) / len(shares) for chip, shares in chips.items()}

    def _held_by(self, runtime: str) -> list[CorePlace]:
        """Return the cores that a process holds: those whose memory it reports."""
        keys = [
            (reading.runtime, device)
            for reading in self.readings
            for device in reading.numbers(tpu_reading.MEMORY_TOTAL)
        ]
        placed = self._placed(keys)
        return [place for (process, _), place in placed.items() if process == runtime]

    def _placed(self, keys: Iterable[Key]) -> dict[Key, CorePlace]:
        listed = list(keys)
        return self._complete(listed, cores(listed, len(self.uuids), self.per_chip))

    def _complete(self, keys: Sequence[Key], placed: dict[Key, T]) -> dict[Key, T]:
        if keys and not placed:
            self.failures["device_unplaced"] += 1
        return placed

    def _chip_family(self, metric: Metric, values: Mapping[int, float]) -> Family:
        found = {self.uuids[chip]: values[chip] for chip in sorted(values)}
        return by_label(metric, found)


def _of_runtime(
    metric: Metric,
    runtime: str,
    values: Sequence[float],
    together: Callable[[Sequence[float]], float],
) -> Family:
    return by_label(metric, {runtime: together(values)} if values else {})


def _histogram(
    metric: Metric, labels: Sequence[str], reported: Sequence[BucketCounts]
) -> list[Sample]:
    """Return a histogram in seconds; *reported* is in microseconds, counts exact."""
    if not reported:
        return []
    count = sum(counted.count for counted in reported)
    text = labels_text(metric.labels, labels)
    samples: list[Sample] = []
    bounds = reported[0].bounds
    if all(counted.bounds == bounds for counted in reported):
        counts = [0] * (len(bounds) + 1)
        for counted in reported:
            for index, some in enumerate(counted.counts):
                counts[index] += some
        running = list(accumulate(counts))
        count = max(count, running[-1])
        for bound, below in _kept(metric.buckets, bounds, running):
            samples.append((f'{metric.name}_bucket{{{text},le="{bound}"}}', below))
    seconds = sum(counted.mean * counted.count for counted in reported) / _MICROSECONDS
    return [
        *samples,
        (f'{metric.name}_bucket{{{text},le="+Inf"}}', count),
        (f"{metric.name}_sum{{{text}}}", seconds),
        (f"{metric.name}_count{{{text}}}", count),
    ]


def _kept(
    wanted: Sequence[float], bounds: Sequence[float], running: Sequence[int]
) -> Iterator[tuple[float, int]]:
    # Six digits: the name of a series must not depend on how a float rounds.
    seconds = [float(f"{bound / _MICROSECONDS:.6g}") for bound in bounds]
    chosen = {
        next((index for index, bound in enumerate(seconds) if bound >= want), None)
        for want in wanted
    }
    for index in sorted(index for index in chosen if index is not None):
        yield seconds[index], running[index]


log = logging.getLogger("jaxmon.exporter")

_STILL_SECONDS = 60.0
_MOST_TEXT = 300

Standing: TypeAlias = "tuple[str, int, str, CoreState]"
"""Uuid of a chip, core, runtime, state."""


class HangDetector:
    """Remembers the position of each core, and since when."""

    def __init__(self, clock: polling.Clock) -> None:
        self._clock = clock
        # Its state, since when, and whether that was logged.
        self._seen: dict[tuple[str, int], tuple[CoreState, float, bool]] = {}
        self._errors: dict[tuple[str, int], str] = {}

    def update(self, states: Iterable[Standing]) -> list[Standing]:
        """Record *states*; return those newly without progress."""
        now, before = self._clock(), self._seen
        self._seen, hung = {}, []
        for uuid, core, runtime, state in states:
            last, since, logged = before.get((uuid, core), (state, now, False))
            if _moved(last, state) or not state.queued:
                last, since, logged = state, now, False
            elif not logged and now - since >= _STILL_SECONDS:
                logged = True
                hung.append((uuid, core, runtime, state))
            self._seen[uuid, core] = last, since, logged
            if state.error and self._errors.get((uuid, core)) != state.error:
                log.warning("core %d of %s: %s", core, uuid, _plain(state.error))
            self._errors[uuid, core] = state.error
        return hung


def _moved(before: CoreState, now: CoreState) -> bool:
    at = now.program, now.run, now.counter
    return (before.program, before.run, before.counter) != at


def _plain(text: str) -> str:
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= _MOST_TEXT else f"{line[:_MOST_TEXT]}…"


_OWNERS_EVERY = 30.0


class Tpus(polling.Collector):
    """Reads every TPU of this host, and every runtime that serves metrics."""

    name = "tpu"
    deadline = 8.0

    def __init__(
        self,
        *,
        interval: float = 5.0,
        root: Path = tpus.ROOT,
        environ: Mapping[str, str] = os.environ,
        clock: polling.Clock = time.monotonic,
    ) -> None:
        self.interval = interval
        self._root = root
        self._clock = clock
        self._failures: Counter[str] = Counter()
        self._addresses, self._configured = tpu_reading.addresses(environ)
        self._runtimes = Runtimes(
            self._addresses, configured=self._configured, failures=self._failures
        )
        self._chips: dict[str, Chip] = {}
        self._owners: dict[str, int] = {}
        self._owners_at: float | None = None
        self._hangs = HangDetector(clock)

    def collect(self) -> Iterable[Family]:
        """Read chips and runtimes: a few milliseconds, at most five seconds."""
        chips = tpus.find(self._root)
        present = {chip.uuid for chip in chips}
        # A lost chip keeps its position until the hardware changes.
        if not present <= self._chips.keys():
            self._chips = {chip.uuid: chip for chip in chips}
        if not self._chips and not self._configured:
            raise polling.CollectorUnavailable(*tpus.NONE)
        identity = [*self._identity(present), *self._owned(chips)]
        if not self._addresses:  # disabled by the variable that enables them
            return identity

        try:
            readings = self._runtimes.read()
        except ImportError as error:
            reason = "not_installed"
            message = (
                "the package grpcio is missing; pip install 'jaxmon[tpu]' to read what "
                "TPUs do, or pass --disable tpu"
            )
            raise polling.CollectorUnavailable(reason, message, identity) from error
        uuids, per_chip = self._layout(readings, present)
        figures = Figures(uuids, per_chip, readings, self._failures)
        found = [*identity, self._runtimes.up(), *figures.families()]
        self._watch(figures)
        return [*found, polling.partial_failures(self.name, self._failures)]

    def _layout(
        self, readings: Sequence[RuntimeReading], present: set[str]
    ) -> tuple[list[str], int]:
        """Return the uuids of the chips in order, and how many cores each has."""
        if not self._chips:
            return _placeholder_chips(readings)
        per_chip = next(iter(self._chips.values())).model.cores
        reported = sum(reading.count_cores() for reading in readings)
        if reported == len(present) * per_chip:
            # A program that began after the loss of a chip counts without it.
            return [uuid for uuid in self._chips if uuid in present], per_chip
        return list(self._chips), per_chip

    def _identity(self, present: set[str]) -> list[Family]:
        chips = self._chips.values()
        infos = {
            (chip.uuid, chip.index, "google", chip.model.name, "", chip.pci_bus_id): 1.0
            for chip in chips
        }
        up = {chip.uuid: float(chip.uuid in present) for chip in chips}
        return [
            by_label(catalog.ACCELERATOR_INFO, infos),
            by_label(catalog.ACCELERATOR_UP, up),
        ]

    def _owned(self, chips: Sequence[Chip]) -> list[Family]:
        """Return the processes that have the chips open; refreshed rarely: slow."""
        now = self._clock()
        if self._owners_at is None or now - self._owners_at >= _OWNERS_EVERY:
            nodes = frozenset(chip.node for chip in chips if chip.node)
            self._owners = tpus.owners(self._root, nodes) if nodes else {}
            self._owners_at = now
        return [
            gauge(catalog.TPU_OWNER_PID, self._owners[chip.node], chip.uuid)
            for chip in chips
            if chip.node in self._owners
        ]

    def _watch(self, figures: Figures) -> None:
        if hung := self._hangs.update(figures.states()):
            locations = self._runtimes.locations(runtime for _, _, runtime, _ in hung)
            for uuid, core, runtime, state in hung:
                location = locations.get((runtime, state.chip, state.core))
                log.warning(
                    "core %d of %s has made no progress for a minute with %d programs "
                    "queued: run %s of program %s, at %s",
                    *(core, uuid, state.queued, state.run, state.program),
                    _plain(location) if location else f"instruction {state.counter}",
                )


def _placeholder_chips(readings: Sequence[RuntimeReading]) -> tuple[list[str], int]:
    cores = chips = 0
    for reading in readings:
        cores += reading.count_cores()
        chips += reading.count_chips()
    per_chip = max(1, cores // chips) if chips else 1
    return [f"TPU-{index}" for index in range(cores // per_chip)], per_chip
