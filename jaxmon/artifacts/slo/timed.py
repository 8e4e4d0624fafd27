"""
Service-level indicators about time: each evaluation of the rule is an event.

What has stopped reporting is not evaluated: it is neither late nor slow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Self

from jaxmon import catalog, promql
from jaxmon.artifacts.slo.counting import Evaluation
from jaxmon.artifacts.slo.indicators import Selector
from jaxmon.catalog import Metric
from jaxmon.formats import durations
from jaxmon.promql import Expr, gauge, histogram, re
from jaxmon.promql.shape import SCRAPED_LABELS


PAUSES = "(?i)(eval|valid|test|checkpoint|sav|restor|load|warm|init).*"
"""Activities that keep a loop from its steps, by their names."""

PATIENCE = 3
"""How many times its mean a step may take before it is late, if that is longer."""

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


def busy(limit: float, *, compiling: float = inf, active: float = inf) -> Expr:
    """
    Return the processes that compile, or run an activity besides their loop, or did so
    less than *limit* seconds ago: their next step is not due yet.

    Args:
        limit: for a step.
        compiling: seconds after which a compile no longer counts.
        active: likewise, for an activity.
    """
    pauses = re("activity", PAUSES)
    found = [
        _within(gauge(catalog.COMPILE_OLDEST_SECONDS) > 0, compiling),
        _within(gauge(catalog.ACTIVITY_RUNNING_SECONDS, pauses) > 0, active),
        gauge(catalog.ACTIVITY_AGE_SECONDS, pauses) < limit,
    ]
    compiles, activities, ended = (one.max(*SCRAPED_LABELS) for one in found)
    return compiles.or_(activities).or_(ended)


def patience(age: Expr, limit: float) -> Expr:
    """
    Return the *age* above which each loop's step is late: *limit* seconds, or
    `PATIENCE` of its steps if that is longer.
    """
    steps = histogram(catalog.STEP_SECONDS)
    mean = (steps.sum.total() / (steps.count.total() > 0)) * PATIENCE
    return promql.call("clamp_min", mean, limit).or_(age * 0 + limit)


def _within(age: Expr, limit: float) -> Expr:
    return age if limit == inf else age < limit
