"""
A few numbers of the last minutes, for charts.

Bounded whatever runs: `POINTS` samples of `SERIES`, of the host and of at most
`MOST_PROCESSES` processes; 13 KB for each of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from math import isnan, nan
from typing import TypedDict

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.facts.reading import Reading
from jaxmon.facts.recent import Recent, rates, slowest_p95


EVERY = 5.0
"""Seconds between two samples."""

POINTS = 180
MOST_PROCESSES = 64
SERIES = (
    *("requests", "errors", "p95", "queue", "steps", "compiles", "device_memory"),
    *("host_memory", "busy"),
)
"""
Requests, failed requests and compiles a second, p95 of the slowest route, steps a
second of the slowest process, items, bytes, and the mean utilization of the
accelerators.
"""

_HOST = ""
_DIGITS = 5


class ShownCharts(TypedDict):
    """Samples, the oldest first: Unix times, and values by `SERIES`."""

    every: float
    times: list[float]
    series: dict[str, list[float | None]]


class ChartSamples:
    """Samples of the last quarter of an hour, in a ring."""

    def __init__(self) -> None:
        self._times = array("d")
        self._rings: dict[str, dict[str, array[float]]] = {_HOST: _ring()}
        self._seen: dict[str, int] = {}
        self._next = 0
        self._latest: Reading | None = None

    def due(self, time: float) -> bool:
        """Return whether a sample of *time* would be one to keep."""
        latest = self._latest
        return latest is None or not 0 <= time - latest.time < EVERY

    def add(self, reading: Reading) -> None:
        """Keep the numbers of *reading*, and what happened since the one before."""
        recent = Recent(reading, self._latest, young=EVERY)
        self._latest = reading.compared()
        place = self._next % POINTS
        if place < len(self._times):
            self._times[place] = reading.time
        else:
            self._times.append(reading.time)
        samples = _samples(reading, recent)
        for worker in samples:
            if worker not in self._rings and len(self._rings) <= MOST_PROCESSES:
                self._rings[worker] = _ring()
            self._seen[worker] = self._next
        for worker, ring in self._rings.items():
            values = samples.get(worker, {})
            for name in SERIES:
                ring[name][place] = values.get(name, nan)
        self._next += 1
        for worker, seen in list(self._seen.items()):
            if self._next - seen >= POINTS:
                del self._seen[worker]
                self._rings.pop(worker, None)

    def charts(self, worker: str | None = None) -> ShownCharts | None:
        """
        Return the samples of the host, or of the process *worker*; `None` if there are
        none of it.
        """
        ring = self._rings.get(worker or _HOST)
        if ring is None:
            return None
        count = len(self._times)
        first = self._next % POINTS if count == POINTS else 0
        order = [(first + index) % POINTS for index in range(count)]
        return ShownCharts(
            every=EVERY,
            times=[round(self._times[index], 1) for index in order],
            series={
                name: [_shown(of[index]) for index in order]
                for name, of in ring.items()
            },
        )


def _ring() -> dict[str, array[float]]:
    return {name: array("d", [nan]) * POINTS for name in SERIES}


def _shown(value: float) -> float | None:
    return None if isnan(value) else float(f"{value:.{_DIGITS}g}")


def _samples(now: Reading, recent: Recent) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {_HOST: {}}

    def put(name: str, values: Mapping[str, float], whole: _Whole | None) -> None:
        for worker, value in values.items():
            found.setdefault(worker, {})[name] = value
        if whole is not None and values:
            found[_HOST][name] = whole(values.values())

    requests = recent.distributions(catalog.REQUEST_SECONDS)
    failed = {key: observed for key, observed in requests.items() if key[2] == "error"}
    finished = rates(requests, recent)
    put("requests", finished, sum)
    put("errors", dict.fromkeys(finished, 0.0) | rates(failed, recent), sum)
    for worker in {_HOST, *(key[0] for key in requests)}:
        of = {key: o for key, o in requests.items() if worker in (_HOST, key[0])}
        if (p95 := slowest_p95(of)) is not None:
            found.setdefault(worker, {})["p95"] = p95
    put("steps", rates(recent.distributions(catalog.STEP_SECONDS), recent), min)
    put("compiles", recent.sums(catalog.COMPILES), sum)
    put("queue", _sums(now, catalog.QUEUE_DEPTH), sum)
    put("host_memory", _sums(now, catalog.PROCESS_RESIDENT_MEMORY_BYTES), sum)
    put("device_memory", _sums(now, catalog.DEVICE_MEMORY_BYTES, kind="in_use"), sum)
    busy = now.of(catalog.ACCELERATOR_UTILIZATION_RATIO).values()
    if busy:
        found[_HOST]["busy"] = sum(busy) / len(busy)
    return found


_Whole = Callable[[Iterable[float]], float]


def _sums(now: Reading, metric: Metric, **only: str) -> dict[str, float]:
    sums = now.by(metric, "worker", **only)
    return {worker: value for (worker,), value in sums.items()}
