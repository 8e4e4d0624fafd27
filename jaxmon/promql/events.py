"""
Exact counts between two evaluations of a rule, and what is recorded of events: errors,
compiles and others with which a process often begins, or ends.

`increase` extrapolates, and does not see what a series counted before its first sample.
A count here is the difference between what one evaluation of the rule sees and what the
evaluation before it saw. These differences add up to the counter itself, so windows of
any length are their sums, and no rule reads raw counters over a window again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.host.formats import durations
from jaxmon.promql import Counter, Expr, Matcher, RecordedSeries
from jaxmon.promql.expressions import SCRAPED_LABELS


_PROCESSES = {
    "restarted": "Processes that started again since the last evaluation of the group.",
    "returned": "Processes that are older than Prometheus has known them.",
}
_PARTS = {
    "latest": "The latest sample since the last evaluation, if it is not 0.",
    "there": "The sample of now, if it is not 0.",
    "restarted": "0 for series that started again.",
    "lapsed": "The last sample of series that the sample before lacks.",
    "unknown": "Series of processes that are older than they have been known.",
    "before": "From what is counted, if not the sample before.",
}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """
    When rules count: each *interval*, that of their group, samples that may be stored
    with a *delay*, longer than the scrape timeout; what is stored later is not counted.
    Scrapes that fail within *memory* lose nothing. The *group* is in the names of what
    `conditions` record.
    """

    interval: str = "30s"
    delay: str = "15s"
    memory: str = "5m"
    group: str = ""

    def name(self, processes: str) -> str:
        """Return the name of the *processes* that the group records."""
        return f"worker:{self.group or 'jaxmon'}:{processes}"

    @property
    def before(self) -> str:
        """How far back the previous evaluation looked."""
        return durations.text(
            durations.seconds(self.delay) + durations.seconds(self.interval)
        )

    def scaled(self, scale: float) -> Self:
        """Return it with every duration divided by *scale*."""
        return replace(
            self,
            interval=durations.scaled(self.interval, scale),
            delay=durations.scaled(self.delay, scale),
            memory=durations.scaled(self.memory, scale),
        )


def counted(
    counter: Counter,
    when: Evaluation,
    of: Metric | str,
    *,
    rare: bool = False,
    kept: bool = False,
) -> Expr:
    """
    Return by how much each series rose since the previous evaluation; of a *rare* rise,
    only where there is one, which is cheaper; if most series are 0, those that are not
    are *kept*, which is cheaper still. What rules record for it is named *of* a metric,
    or of what else no other group counts.

    A series that falls started again, as does one whose process did. These, and new
    ones of a new process or of one that is known, count in full. A series that returns
    after a gap counts from there: what it counted meanwhile is unknown, and what it
    counted before is not new. A series that ended since then counts to its end.

    What a killed process counted is not what its successor counts from: Prometheus
    marks a series as ended when a scrape lacks it, which a selector without a range
    respects. So a young process that was scraped without the series has none before.
    Between two evaluations, the last process counts to its end, and others as far as
    they were seen.
    """
    now = counter.latest(when.interval, back=when.delay)
    there, before = (counter.total().offset(back) for back in (when.delay, when.before))
    last = counter.latest(when.memory, back=when.before)
    counting = promql.gauge(catalog.COUNTING_SECONDS).offset(when.before)
    young = counting < durations.seconds(when.memory)
    restarted, returned = (promql.recorded(when.name(of)) for of in _PROCESSES)
    if rare:
        now, before, last = now > 0, before > 0, last > 0
    if kept:
        # To select all series takes the most time.
        there = _recorded(there > 0, of, "there")
        now, before = _recorded(now, of, "latest"), there.offset(when.interval)
        # What Prometheus recorded before it was killed is not of this evaluation.
        now = promql.recorded_over("last", now, 1)
    # Of most series, what was before is the sample before. Anything else is recorded:
    # of few series, mostly of none, so that what is made of it costs little.
    restarts = there.and_(restarted, *SCRAPED_LABELS) * 0
    lapsed = last.unless(before).unless(young, *SCRAPED_LABELS)
    if not when.group:
        other = _recorded(restarts.or_(lapsed), of, "before")
        other = promql.recorded_over("last", other, 1)
        new = now.unless(returned, *SCRAPED_LABELS)
        rise = ((now - other.or_(before)) >= 0).or_(new)
        return rise > 0 if rare else rise
    # The same in parts: objectives have long selectors.
    unknown = now.and_(returned, *SCRAPED_LABELS)
    restarts = _recorded(restarts, of, "restarted")
    lapsed = _recorded(lapsed, of, "lapsed")
    unknown = _recorded(unknown, of, "unknown")
    other = _recorded(restarts.or_(lapsed).or_(unknown), of, "before")
    return ((now - other.or_(before)) >= 0).or_(now)


def _recorded(part: Expr, of: Metric | str, name: str) -> Expr:
    return part.record("worker", of, name, _PARTS[name])


def conditions(when: Evaluation, *, ours: bool = True) -> Iterator[RecordedSeries]:
    """Yield what a group has to record before it counts metrics, *ours* or others'."""
    for name, expr in zip(
        _PROCESSES, (_restarted(when), _returned(when, ours=ours)), strict=True
    ):
        yield RecordedSeries(when.name(name), expr, _PROCESSES[name])


def _restarted(when: Evaluation) -> Expr:
    """Return the processes whose counters were zero since the last evaluation."""
    counting, counted_before = _evaluated(catalog.COUNTING_SECONDS, when)
    start, before = _evaluated(catalog.PROCESS_START_TIME_SECONDS, when)
    uptime, _ = _evaluated(catalog.UPTIME_SECONDS, when)
    replaced = start.differing(before).unless(counting > uptime)
    return (counting < counted_before).or_(replaced)


def _returned(when: Evaluation, *, ours: bool) -> Expr:
    """Return the processes that are older than they have been known."""
    if not ours:
        now, before = _evaluated(catalog.PROCESS_START_TIME_SECONDS, when)
        old = promql.time() - now > durations.seconds(when.memory)
        return old.unless(before, *SCRAPED_LABELS)
    # By the process's own clock: Prometheus's may be minutes ahead of it. What ended
    # processes counted has no uptime, and agents of earlier releases nothing else.
    uptime, uptime_before = _evaluated(catalog.UPTIME_SECONDS, when)
    counting, counted_before = _evaluated(catalog.COUNTING_SECONDS, when)
    old = counting.or_(uptime) > durations.seconds(when.memory)
    return old.unless(uptime_before.or_(counted_before), *SCRAPED_LABELS)


def _evaluated(metric: catalog.Metric, when: Evaluation) -> tuple[Expr, Expr]:
    """Return a gauge as this evaluation sees it, and as the previous one saw it."""
    return (
        promql.gauge_over(metric, "last", when.interval, back=when.delay),
        promql.gauge_over(metric, "last", when.memory, back=when.before),
    )


# The series of functions are many. Of processes that live for less, some are not seen.
INTERVAL = "1m"


@dataclass(frozen=True, slots=True)
class Events:
    """
    What is recorded of a counter, or of a histogram's sum, *by* labels. That of *many*
    series is not 0.
    """

    metric: Metric
    by: tuple[str, ...] = ()
    many: bool = False

    @property
    def name(self) -> str:
        """Return ``level:metric:delta``."""
        level = "job" if self.by else "worker"
        return f"{level}:{self.metric.name.removesuffix('_total')}:delta"

    def record(self, when: Evaluation) -> RecordedSeries:
        """Return how they are recorded."""
        rare = not self.by
        kept = rare and not self.many
        rise = counted(self._counter, when, self.metric, rare=rare, kept=kept)
        sentence = f"New since the last evaluation. {self.metric.help}"
        return RecordedSeries(
            self.name, rise.sum(*self.by) if self.by else rise, sentence
        )

    def within(self, window: str, *matchers: Matcher) -> Expr:
        """Return how many there were within *window*, by all labels."""
        labels = self.by or (*SCRAPED_LABELS, *self.metric.labels)
        unit = self._counter.shape.unit or ""
        series = promql.recorded(self.name, *matchers, labels=labels, unit=unit)
        length = window if "$" in window else durations.seconds(window)
        return promql.recorded_over("sum", series, length)

    @property
    def _counter(self) -> Counter:
        if self.metric.kind == "histogram":
            return promql.histogram(self.metric).sum
        return promql.counter(self.metric)


ERRORS = Events(catalog.ERRORS)
COMPILES = Events(catalog.COMPILES, many=True)
COMPILE_SECONDS = Events(catalog.COMPILE_SECONDS, many=True)
RECOMPILES = Events(catalog.RECOMPILES, many=True)
WARMUPS = Events(catalog.WARMUP_SIGNATURES)
LATE_COMPILES = Events(catalog.COMPILES_AFTER_READY)
CACHE_LOOKUPS = Events(catalog.PERSISTENT_CACHE_REQUESTS)
CACHE_WRITES = Events(catalog.PERSISTENT_CACHE_WRITES)
CACHE_ERRORS = Events(catalog.PERSISTENT_CACHE_ERRORS)
CACHE_SAVED = Events(catalog.PERSISTENT_CACHE_SAVED_SECONDS)
CHECKPOINT_FAILURES = Events(catalog.CHECKPOINT_FAILURES)
KEY_REUSE = Events(catalog.KEY_REUSE)
DETERMINISM_CHECKS = Events(catalog.DETERMINISM_CHECKS)
GRADIENT_CHECKS = Events(catalog.GRADIENT_CHECKS)
DEVICE_DEVIATIONS = Events(catalog.DEVICE_DEVIATIONS)
NONFINITE = Events(catalog.NONFINITE)
PROMOTIONS = Events(catalog.FLOAT64_PROMOTIONS)
SPIKES = Events(catalog.VALUE_SPIKES)
WARNINGS = Events(catalog.JAX_WARNINGS)
INTERNAL_ERRORS = Events(catalog.INTERNAL_ERRORS)
STEPS = Events(catalog.STEPS, ("job", "loop"))
_REQUEST = ("job", "route", "outcome", "start")
REQUESTS = Events(catalog.REQUESTS, _REQUEST)
REQUEST_SECONDS = Events(catalog.REQUEST_SECONDS, _REQUEST)

EVERY = tuple(found for found in vars().values() if isinstance(found, Events))


def recorded(when: Evaluation) -> Iterator[RecordedSeries]:
    """Yield what is recorded of evaluations *when*."""
    yield from conditions(when)
    for events in EVERY:
        yield events.record(when)
