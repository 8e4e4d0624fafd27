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
from jaxmon.artifacts.promql import Counter, Expr, gauge
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

    A series that falls started again, and a new one of a new process or of one that is
    known counts in full. A series that returns after a gap counts from there: what it
    counted meanwhile is unknown, and what it counted before is not new.
    """
    now = counter.total().offset(when.delay)
    before = counter.latest(when.memory, back=when.before)
    rise = (now - before) >= 0
    return rise.or_(now.unless(_returned(counter, when), *SCRAPED_LABELS))


def _returned(counter: Counter, when: Evaluation) -> Expr:
    """Return the processes that are older than they have been known."""
    ours = counter.shape.metrics <= catalog.BY_NAME.keys()
    # By the process's own clock: Prometheus's may be minutes ahead of it.
    metric = catalog.UPTIME_SECONDS if ours else catalog.PROCESS_START_TIME_SECONDS
    now = gauge(metric).offset(when.delay)
    age = now if ours else promql.time() - now
    known = promql.gauge_over(metric, "last", when.memory, back=when.before)
    old = age > durations.seconds(when.memory)
    return old.unless(known, *SCRAPED_LABELS)
