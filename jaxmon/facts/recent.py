"""
What happened between two readings, process by process, and so lately: requests, queues
and batches by route and queue, steps by loop; with it, all that is known of a host.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.facts import status
from jaxmon.facts.reading import (
    Key,
    Observations,
    Observed,
    Reading,
    by_process,
    in_order,
    total,
)
from jaxmon.facts.record import summed
from jaxmon.limits import Limits


YOUNG = 90.0
_SAME_START = 1.0

MINUTE, TEN_MINUTES = 60.0, 600.0
# Readings that are kept for each, and of what: some processes have many routes.
_MOST = {MINUTE: 6, TEN_MINUTES: 3}
_METRICS: Mapping[float, tuple[Metric, ...]] = {
    MINUTE: (),
    TEN_MINUTES: (
        catalog.REQUEST_SECONDS,
        catalog.DROPPED,
        catalog.PROCESS_START_TIME_SECONDS,
    ),
}
# Shorter differences are chance; longer ones, as multiples, are not of that time.
_LEAST, _OLDEST = 10.0, 3
# Fewer are no rate, if there is one of the whole life of a young process.
_ENOUGH = 10
_NONE = Reading(0.0, {}, {}, {})


class Pace(NamedTuple):
    """How many a second there were in so many *seconds*."""

    rate: float
    seconds: float


class Recent:
    """
    Differences of two readings.

    Args:
        now: the latest one.
        before: the one to compare with, `None` if there is none.
        young: age in seconds up to which all that a process did is recent.
    """

    def __init__(
        self, now: Reading, before: Reading | None, *, young: float = YOUNG
    ) -> None:
        self._now, self._before, self._young = now, before, young
        self._workers_before = _processes(before) if before is not None else frozenset()

    def seconds(self, worker: str) -> float | None:
        """
        Return the time that the differences of the process *worker* are about; `None`
        if it was not read before, and is not young, or adds to what others counted.
        """
        before = self._before_of(worker)
        return self._now.time - before.time if before else self._age(worker)

    def values(self, metric: Metric) -> dict[Key, float]:
        """Return by how much each counter *metric* rose, if that is known."""
        found = {}
        for key, value in self._now.of(metric).items():
            if self.seconds(key[0]) is not None:
                before = self._before_of(key[0])
                past = before.of(metric).get(key, 0.0) if before else 0.0
                found[key] = value - past if past <= value else value
        return found

    def distributions(self, metric: Metric) -> dict[Key, Observations]:
        """Return what each histogram *metric* observed, if that is known."""
        return {
            key: observed.since(self._distribution_before(metric, key))
            for key, observed in self._now.distributions(metric).items()
            if self.seconds(key[0]) is not None
        }

    def paces(self, metric: Metric) -> dict[str, dict[str, Pace]]:
        """
        Return how fast each histogram *metric* counted, by its first label and process:
        between the readings, also of a young process if it counted enough there.
        """
        found: dict[str, dict[str, Pace]] = defaultdict(dict)
        for recent in (self, Recent(self._now, self._before, young=0)):
            for label, of in _by_route(recent.distributions(metric)).items():
                counts = summed((key[0], seen.observed) for key, seen in of.items())
                for worker, count in counts.items():
                    seconds = recent.seconds(worker)
                    if seconds and (recent is self or count >= _ENOUGH):
                        found[label][worker] = Pace(count / seconds, seconds)
        return found

    def sums(self, metric: Metric) -> dict[str, float]:
        """Return how fast the sum over all functions of *metric* rose, by process."""
        found = {}
        for worker, value in self._now.sums.get(metric.name, {}).items():
            if seconds := self.seconds(worker):
                before = self._before_of(worker)
                past = before.sums.get(metric.name, {}) if before else {}
                rose = value - past.get(worker, 0.0)
                found[worker] = (rose if rose >= 0 else value) / seconds
        return found

    def usual(self, metric: Metric) -> dict[Key, Observations]:
        """Return what each histogram *metric* of old processes observed, no others."""
        began = self._before.began if self._before is not None else {}
        return {
            key: observed.since(began.get(key[0], _NONE).distributions(metric).get(key))
            for key in self._now.distributions(metric)
            if (observed := self._distribution_before(metric, key)) is not None
            and (key[0] in began or not self._now.inherited(key[0]))
        }

    def _distribution_before(self, metric: Metric, key: Key) -> Observations | None:
        before = self._before_of(key[0])
        return before.distributions(metric).get(key) if before else None

    def _before_of(self, worker: str) -> Reading | None:
        """Return what to compare the process with; `None` if young or unknown."""
        before, now = self._before, self._now
        if before is None:
            return None
        if worker not in self._workers_before or not _are_same(before, now, worker):
            first = before.began.get(worker, now)
            settled = now.time - first.time >= _LEAST
            return first if settled and _are_same(first, now, worker) else None
        young = before.started(worker) is not None and self._age(worker) is not None
        return None if young else before

    def _age(self, worker: str) -> float | None:
        """Return the age of a process that is young, and alone counted in its slot."""
        started = self._now.started(worker)
        if started is None or self._now.inherited(worker):
            return None
        age = self._now.time - started
        return age if 0 < age < self._young else None


class Window:
    """Keeps a few readings: there is one from about a minute ago, and from ten."""

    def __init__(self) -> None:
        self._kept: dict[float, deque[Reading]] = {
            seconds: deque() for seconds in (MINUTE, TEN_MINUTES)
        }
        self._first: dict[str, Reading] = {}

    def add(self, reading: Reading) -> None:
        """Keep *reading*, unless there is one from just before it."""
        self._first = {
            worker: first
            if first is not None and _are_same(first, reading, worker)
            else by_process(reading.compared())[worker]
            for (worker,) in reading.of(catalog.PROCESS_START_TIME_SECONDS)
            if reading.inherited(worker)
            for first in [self._first.get(worker)]
        }
        for seconds, kept in self._kept.items():
            if kept and kept[-1].time > reading.time:  # the clock was set back
                kept.clear()
            if kept and reading.time - kept[-1].time < seconds / _MOST[seconds]:
                continue
            kept.append(reading.compared(*_METRICS[seconds]))
            # The first one is the youngest that is old enough.
            while len(kept) > 1 and reading.time - kept[1].time >= seconds:
                kept.popleft()

    def before(self, time: float, seconds: float = MINUTE) -> Reading | None:
        """
        Return the reading of so many *seconds* before *time* to compare with, of less
        if there is none as old; `None` without one.
        """
        kept = self._kept[seconds]
        if not kept or not _LEAST <= time - kept[0].time < _OLDEST * seconds:
            return None
        return kept[0]._replace(began=self._first)


def _are_same(before: Reading, now: Reading, worker: str) -> bool:
    """Return whether it is the same process, as far as is known."""
    first, started = before.started(worker), now.started(worker)
    if started is None:
        # What an ended process left is not about those that run now.
        up = now.of(catalog.AGENT_UP)
        return first is None and ((worker,) in up or not up)
    return first is None or abs(first - started) < _SAME_START


def _processes(reading: Reading) -> frozenset[str]:
    every = (*reading.values.values(), *reading.histograms.values())
    return frozenset(key[0] for of in every for key in of)


_WARM = "warm"


def requests(now: Reading, recent: Recent) -> list[status.RequestSummary]:
    """Return the routes, those that fail most first, then the most frequent."""
    every = _by_route(now.distributions(catalog.REQUEST_SECONDS))
    lately = _by_route(recent.distributions(catalog.REQUEST_SECONDS))
    usual = _by_route(recent.usual(catalog.REQUEST_SECONDS))
    paces = recent.paces(catalog.REQUEST_SECONDS)
    waiting = _by_label(now.of(catalog.REQUESTS_IN_PROGRESS))
    oldest = _by_label(now.of(catalog.REQUEST_OLDEST_SECONDS))
    found = []
    for route in every.keys() | waiting.keys():
        all_of, new, before = (of.get(route, {}) for of in (every, lately, usual))
        running = waiting.get(route, {})
        ages = oldest.get(route, {}) if any(running.values()) else {}
        worker = max(ages, key=ages.__getitem__, default="")
        summary = _request(route, all_of, new, before, recent).replace(
            workers=in_order({key[0] for key in all_of} | running.keys()),
            in_progress=sum(running.values()) if running else None,
            oldest=ages.get(worker),
            oldest_worker=worker,
        )
        if of := paces.get(route, {}).values():
            summary = summary.replace(
                rate=sum(pace.rate for pace in of),
                rate_seconds=max(pace.seconds for pace in of),
            )
        found.append(summary)
    found.sort(key=lambda of: (-(of.recent_failed or 0), -of.total, of.route))
    return found


def slowest_p95(found: Observed) -> float | None:
    """
    Return the p95 of the route whose is highest, of all its successful requests, warm
    or not; `None` without any.
    """
    times = [_latency(_of(of, "success")) for of in _by_route(found).values()]
    return max((time.p95 for time in times if time and time.p95), default=None)


def queues(now: Reading) -> list[status.QueueSummary]:
    """Return the queues, the deepest first."""
    found = [
        status.QueueSummary(name, in_order(depths), sum(depths.values()))
        for name, depths in _by_label(now.of(catalog.QUEUE_DEPTH)).items()
    ]
    return sorted(found, key=lambda queue: (-queue.depth, queue.queue))


def batches(now: Reading, recent: Recent) -> list[status.BatchSummary]:
    """Return the batches of each route, the most frequent first."""
    every = _by_route(now.distributions(catalog.BATCH_FILL_RATIO))
    lately = _by_route(recent.distributions(catalog.BATCH_FILL_RATIO))
    paces = recent.paces(catalog.BATCH_FILL_RATIO)
    found = []
    for route, of in every.items():
        rates = [pace.rate for pace in paces.get(route, {}).values()]
        new = total(lately.get(route, {}).values())
        found.append(
            status.BatchSummary(
                route=route,
                workers=in_order({key[0] for key in of}),
                total=_count(of.values()),
                rate=sum(rates) if rates else None,
                fill=new.mean if new is not None else None,
            )
        )
    return sorted(found, key=lambda summary: (-summary.total, summary.route))


def _request(
    route: str, every: Observed, lately: Observed, usual: Observed, recent: Recent
) -> status.RequestSummary:
    is_known = bool(lately) or not every
    finished, failed = _count(lately.values()), _count(_of(lately, "error"))
    refused = _count(_of(lately, "client_error"))
    waited = finished - _count(_of(lately, None, warm=True))
    before = total(_of(usual, "success", warm=True))
    times = [
        seconds for key in lately if (seconds := recent.seconds(key[0])) is not None
    ]
    return status.RequestSummary(
        route=route,
        total=_count(every.values()),
        failed=_count(_of(every, "error")),
        client_errors=_count(_of(every, "client_error")),
        cold_total=_count(_of(every, None, warm=False)),
        recent_seconds=max(times, default=None),
        recent=finished if is_known else None,
        recent_failed=failed if is_known else None,
        recent_client_errors=refused if is_known else None,
        error_ratio=failed / finished if finished else None,
        cold_ratio=waited / finished if finished else None,
        latency=_latency(_of(lately, "success")),
        warm=_latency(_of(lately, "success", warm=True)),
        cold=_latency(_of(lately, "success", warm=False)),
        usual_p50=before.quantile(0.5) if before is not None else None,
        usual_p95=before.quantile(0.95) if before is not None else None,
        usual_count=before.observed if before is not None else 0.0,
    )


def _of(
    found: Observed, outcome: str | None, *, warm: bool | None = None
) -> list[Observations]:
    return [
        observed
        for (_, _, ended_as, start), observed in found.items()
        if outcome in (None, ended_as) and warm in (None, start == _WARM)
    ]


def _latency(found: Iterable[Observations]) -> status.Latency | None:
    every = total(found)
    if every is None or every.observed <= 0:
        return None
    return status.Latency(
        count=every.observed,
        p50=every.quantile(0.5),
        p95=every.quantile(0.95),
        p99=every.quantile(0.99),
    )


def rates(found: Observed, recent: Recent) -> dict[str, float]:
    """Return how many a second there were, by process."""
    return summed(
        (key[0], observed.observed / seconds)
        for key, observed in found.items()
        if (seconds := recent.seconds(key[0]))
    )


def _count(found: Iterable[Observations]) -> float:
    return sum(observed.observed for observed in found)


def _by_route(found: Observed) -> dict[str, dict[Key, Observations]]:
    routes: dict[str, dict[Key, Observations]] = defaultdict(dict)
    for key, observed in found.items():
        routes[key[1]][key] = observed
    return routes


def _by_label(found: Mapping[Key, float]) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for (worker, label), value in found.items():
        values[label][worker] = value
    return values


_STEP = "step"


def loops(now: Reading, recent: Recent) -> list[status.LoopSummary]:
    """Return the loops, those that run first, then those with most steps."""
    lately = recent.distributions(catalog.STEP_SECONDS)
    usual = recent.usual(catalog.STEP_SECONDS)
    paces = recent.paces(catalog.STEP_SECONDS)
    waits = recent.values(catalog.DATA_WAIT_SECONDS)
    goodput = _goodput(recent)
    ages = now.of(catalog.STEP_AGE_SECONDS)
    every = now.distributions(catalog.STEP_SECONDS)
    keys: dict[str, set[Key]] = defaultdict(set)
    for key in (*every, *ages):
        keys[key[1]].add(key)
    found = []
    for loop, of in keys.items():
        these = {key: lately[key] for key in of if key in lately}
        slowest = min(paces.get(loop, {}).values(), default=None)
        new = total(these.values())
        before = total(usual[key] for key in of if key in usual)
        running = {key[0]: ages[key] for key in of if key in ages}
        oldest = max(running, key=lambda worker: running[worker], default="")
        parts = [goodput[key[0]] for key in of if key[0] in goodput]
        waited = sum(waits.get(key, 0.0) for key in of)
        found.append(
            status.LoopSummary(
                loop=loop,
                workers=in_order({key[0] for key in of}),
                steps=sum(every[key].observed for key in of if key in every),
                rate=None if slowest is None else slowest.rate,
                rate_seconds=None if slowest is None else slowest.seconds,
                p50=new.quantile(0.5) if new is not None else None,
                p95=new.quantile(0.95) if new is not None else None,
                mean=new.mean if new is not None else None,
                usual=before.mean if before is not None else None,
                data_wait_ratio=_ratio(waited, new),
                goodput=sum(parts) / len(parts) if parts and running else None,
                age=running.get(oldest),
                age_worker=oldest,
            )
        )
    return sorted(found, key=lambda loop: (loop.age is None, -loop.steps, loop.loop))


def _ratio(waited: float, steps: Observations | None) -> float | None:
    if steps is None or steps.observed <= 0 or steps.sum <= 0:
        return None
    return min(waited / steps.sum, 1.0)


def _goodput(recent: Recent) -> Mapping[str, float]:
    """Return what part of each process's time was spent in steps, without rests."""
    whole: dict[str, float] = defaultdict(float)
    steps: dict[str, float] = defaultdict(float)
    for (worker, activity), seconds in recent.values(catalog.TIME_SECONDS).items():
        whole[worker] += seconds if activity != catalog.REST else 0.0
        if activity == _STEP:
            steps[worker] += seconds
    return {worker: steps[worker] / of for worker, of in whole.items() if of > 0}


class HostFacts(NamedTuple):
    """
    What is known of the processes of a host, and the limits to judge by.

    Attributes:
        lately: the last ten minutes, or what of them is known; *recent* is the last.
        requests_lately: the requests in that time, by route.
    """

    now: Reading
    recent: Recent
    lately: Recent
    requests: Sequence[status.RequestSummary]
    requests_lately: Mapping[str, status.RequestSummary]
    loops: Sequence[status.LoopSummary]
    agents: Sequence[status.AgentSummary]
    devices: Sequence[status.DeviceSummary]
    accelerators: Sequence[status.AcceleratorSummary]
    verdict: status.HostVerdict
    limits: Limits

    def took(self, route: str) -> dict[str, Observations]:
        """Return how long the requests to *route* took lately, by outcome."""
        found: dict[str, list[Observations]] = defaultdict(list)
        for key, observed in self.lately.distributions(catalog.REQUEST_SECONDS).items():
            if key[1] == route and observed.observed:
                found[key[2]].append(observed)
        return {outcome: every for outcome, of in found.items() if (every := total(of))}
