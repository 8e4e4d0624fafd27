"""
Service-level indicators about time: each evaluation of the rule is an event.

What has stopped reporting is not evaluated: it is neither late nor slow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.host.formats import durations
from jaxmon.promql import Expr
from jaxmon.promql.counting import Evaluation
from jaxmon.promql.shape import SCRAPED_LABELS
from jaxmon.symptoms.steps import busy, patience
from jaxmon_alerts.slo.indicators import Selector


_RATE_WINDOW = "5m"


@dataclass(frozen=True, slots=True)
class Freshness:
    """
    Time during which something was older than *within*.

    Args:
        age: a gauge in seconds: an age, or the time since which it counts.
        within: the limit.

    A process that compiles, or is busy with an activity such as an evaluation or a
    checkpoint, makes progress: JaxmonTrainingStalled fires if that takes too long. A
    loop with long steps is late after `PATIENCE` of them.
    """

    age: Selector
    within: str
    timed = True

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""
        return (self.age.metric,)

    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return how many series were evaluated."""
        del when
        return self.age.gauge.count(*by)

    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return how many were late."""
        del when
        return self._late().sum(*by).or_(events * 0)

    def scaled(self, scale: float) -> Self:
        """Return it with *within* divided by *scale*."""
        return replace(self, within=durations.scaled(self.within, scale))

    def _late(self) -> Expr:
        age, limit = self.age.gauge, durations.seconds(self.within)
        if self.age.metric.name == catalog.STEP_AGE_SECONDS.name:
            return age.above(patience(age, limit)).unless(busy(limit), *SCRAPED_LABELS)
        if self.age.metric.name.endswith("_timestamp_seconds"):
            age = promql.time() - age
        return age.above(limit)


@dataclass(frozen=True, slots=True)
class Throughput:
    """
    Time during which fewer than *floor* events a second happened.

    Args:
        total: a counter.
        floor: events a second over five minutes, per combination of labels.
    """

    total: Selector
    floor: float
    timed = True

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""
        return (self.total.metric,)

    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return 1 for each combination of labels that has the counter."""
        del when
        return self._rate(by).above(-1)

    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return 1 for each whose rate is below the floor."""
        del when, events
        return self._rate(by).below(self.floor)

    def scaled(self, scale: float) -> Self:
        """Return itself: rates do not scale."""
        del scale
        return self

    def _rate(self, by: tuple[str, ...]) -> Expr:
        return self.total.counter.rate(_RATE_WINDOW).sum(*by)
