"""
Exact counts between two evaluations of a rule.

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
from jaxmon.host.formats import durations
from jaxmon.promql import Counter, Expr
from jaxmon.promql.shape import SCRAPED_LABELS


RESTARTED, RETURNED = (
    f"worker:{catalog.COUNTING_SECONDS.name}:{what}"
    for what in ("restarted", "returned")
)
"""Recorded for what counts in the same group: processes since its last evaluation."""

_GROUP = "sloth_id"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """
    When rules count: each *interval*, that of their group, samples that may be stored
    with a *delay*, longer than the scrape timeout; what is stored later is not counted.
    Scrapes that fail within *memory* lose nothing. The *group* tells its `RESTARTED`
    and `RETURNED` from others'.
    """

    interval: str = "30s"
    delay: str = "15s"
    memory: str = "5m"
    group: str = ""

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


def counted(counter: Counter, when: Evaluation, *, rare: bool = False) -> Expr:
    """
    Return by how much each series rose since the previous evaluation; of a *rare* rise,
    only where there is one, which is cheaper.

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

    def some(series: Expr) -> Expr:
        return series > 0 if rare else series

    now = some(counter.latest(when.interval, back=when.delay))
    there, before = (
        some(counter.total().offset(back)) for back in (when.delay, when.before)
    )
    counting = promql.gauge(catalog.COUNTING_SECONDS).offset(when.before)
    young = counting < durations.seconds(when.memory)
    # While scrapes fail, everything has ended.
    last = some(counter.latest(when.memory, back=when.before))
    before = before.or_(last.unless(young, *SCRAPED_LABELS))
    # If the series is not there, its last sample is of the process before.
    restarted, returned = (
        promql.recorded(name, promql.eq(_GROUP, when.group))
        for name in (RESTARTED, RETURNED)
    )
    rise = ((now - before) >= 0).unless(there.and_(restarted, *SCRAPED_LABELS))
    return some(rise.or_(now.unless(returned, *SCRAPED_LABELS)))


def conditions(when: Evaluation, *, ours: bool = True) -> Iterator[tuple[str, Expr]]:
    """Yield what a group has to record before it counts metrics, *ours* or others'."""
    yield RESTARTED, _restarted(when)
    yield RETURNED, _returned(when, ours=ours)


def _restarted(when: Evaluation) -> Expr:
    """
    Return the processes whose counters were zero since the previous evaluation: they
    count since less long, or are others and do not continue what those before counted.
    """
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
