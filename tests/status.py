"""A process whose metrics a test sets, and the status that a sidecar makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Family, Histogram, series
from jaxmon.facts.reading import Reading, read
from jaxmon.facts.status import UNREAD, HostVerdict, Summary
from jaxmon.screens.status.summary import summarise
from jaxmon_exporter.collectors.agents.page import families


START = 1000.0
ROUTE = "POST /predict"


class Worker:
    """A process whose metrics a test sets, served and read as an agent's."""

    def __init__(self, slot: int = 0, *, started: float = START) -> None:
        self.slot = slot
        self._histograms: dict[tuple[Any, ...], Histogram] = {}
        self._values: dict[str, tuple[Metric, float]] = {}
        self.set(catalog.PROCESS_START_TIME_SECONDS, started)

    def set(self, metric: Metric, value: float, *labels: object) -> None:
        self._values[series(metric, *labels)] = metric, value

    def observe(self, metric: Metric, value: float, *labels: object) -> None:
        key = (metric, *labels)
        self._histograms.setdefault(key, Histogram(metric, *labels)).observe(value)

    def requests(
        self,
        count: int,
        outcome: str = "success",
        start: str = "warm",
        took: float = 0.1,
    ) -> None:
        for _ in range(count):
            self.observe(catalog.REQUEST_SECONDS, took, ROUTE, outcome, start)

    def steps(self, count: int, took: float, loop: str = "train") -> None:
        for _ in range(count):
            self.observe(catalog.STEP_SECONDS, took, loop)
        self.set(catalog.STEP_AGE_SECONDS, took, loop)

    def page(self) -> list[Family]:
        """Return the families that a sidecar reads from it."""
        every: dict[str, Family] = {}
        found: list[tuple[Metric, list[tuple[str, float]]]] = [
            (metric, [(name, value)]) for name, (metric, value) in self._values.items()
        ]
        found += [(key[0], one.samples()) for key, one in self._histograms.items()]
        for metric, samples in found:
            every.setdefault(metric.name, Family(metric, [])).samples.extend(samples)
        up = Family(catalog.AGENT_UP, [(series(catalog.AGENT_UP, self.slot), 1.0)])
        return [up, *families(str(self.slot), encode(every.values()).decode())]


def reading(*workers: Worker, at: float, extra: Iterable[Family] = ()) -> Reading:
    return read([one for w in workers for one in w.page()] + [*extra], time=at)


def status(
    *workers: Worker,
    at: float = START + 600,
    before: Reading | None = None,
    verdict: HostVerdict = UNREAD,
    extra: Iterable[Family] = (),
) -> Summary:
    return summarise(reading(*workers, at=at, extra=extra), before, verdict=verdict)
