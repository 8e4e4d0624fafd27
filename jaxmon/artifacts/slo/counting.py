"""
Exact counts between two evaluations of a rule.

`increase` extrapolates, and does not see what a series counted before its first sample.
A count here is the difference between what one evaluation of the rule sees and what the
evaluation before it saw. These differences add up to the counter itself, so windows of
any length are their sums, and no rule reads raw counters over a window again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.promql import Counter, Expr
from jaxmon.artifacts.promql.shape import SCRAPED_LABELS
from jaxmon.artifacts.slo import durations


@dataclass(frozen=True, slots=True)
class Evaluation:
    """
    When rules count.

    Args:
        interval: between two evaluations of the rule; must be that of its group.
        delay: how late a sample may be stored, because a scrape is slow or samples are
            sent on. Longer than the scrape timeout: what is stored later is not
            counted.
        memory: how old the previous sample of a series may be: failed scrapes within it
            lose nothing.
    """

    interval: str = "30s"
    delay: str = "15s"
    memory: str = "5m"

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


def counted(counter: Counter, when: Evaluation) -> Expr:
    """
    Return by how much each series rose since the previous evaluation.

    A series that falls started again, as does one whose process counts since less long
    than before. These, and new ones of a new process or of one that is known, count in
    full. A series that returns after a gap counts from there: what it counted meanwhile
    is unknown, and what it counted before is not new. A series that ended since then
    counts to its end.
    """
    now = counter.latest(when.interval, back=when.delay)
    before = counter.latest(when.memory, back=when.before)
    rise = ((now - before) >= 0).unless(_restarted(when), *SCRAPED_LABELS)
    return rise.or_(now.unless(_returned(counter, when), *SCRAPED_LABELS))


def _restarted(when: Evaluation) -> Expr:
    """Return the processes whose counters were zero since the previous evaluation."""
    now, before = _evaluated(catalog.COUNTING_SECONDS, when)
    return now < before


def _returned(counter: Counter, when: Evaluation) -> Expr:
    """Return the processes that are older than they have been known."""
    ours = counter.shape.metrics <= catalog.BY_NAME.keys()
    if not ours:
        now, before = _evaluated(catalog.PROCESS_START_TIME_SECONDS, when)
        old = promql.time() - now > durations.seconds(when.memory)
        return old.unless(before, *SCRAPED_LABELS)
    # By the process's own clock: Prometheus's may be minutes ahead of it. What ended
    # processes counted has no uptime, and agents of earlier releases nothing else.
    uptime, known = _evaluated(catalog.UPTIME_SECONDS, when)
    counting, counted_before = _evaluated(catalog.COUNTING_SECONDS, when)
    old = counting.or_(uptime) > durations.seconds(when.memory)
    return old.unless(known.or_(counted_before), *SCRAPED_LABELS)


def _evaluated(metric: catalog.Metric, when: Evaluation) -> tuple[Expr, Expr]:
    """Return a gauge as this evaluation sees it, and as the previous one saw it."""
    return (
        promql.gauge_over(metric, "last", when.interval, back=when.delay),
        promql.gauge_over(metric, "last", when.memory, back=when.before),
    )
