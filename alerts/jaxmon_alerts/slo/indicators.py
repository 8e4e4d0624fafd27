"""
Service-level indicators.

Each yields, per combination of some labels, the events and the bad events since the
previous evaluation of the rule; see `jaxmon.promql.counting`. Events are requests,
calls or observations, which are counted, or time: then, each evaluation is an event,
and what has stopped reporting is not evaluated, so neither late nor slow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.host.formats import durations
from jaxmon.promql import Counter, Expr, HistogramQuery, Matcher
from jaxmon.promql.counting import Evaluation, counted
from jaxmon.promql.shape import SCRAPED_LABELS
from jaxmon.symptoms.steps import busy, patience


_RATE_WINDOW = "5m"


@dataclass(frozen=True, slots=True)
class Selector:
    """Series of one metric."""

    metric: Metric
    matchers: tuple[Matcher, ...] = ()

    @property
    def counter(self) -> Counter:
        """What is counted: a counter, or the observations of a histogram."""
        if self.metric.kind == "histogram":
            return self.histogram.count
        return promql.counter(self.metric, *self.matchers)

    @property
    def histogram(self) -> HistogramQuery:
        """The histogram."""
        return promql.histogram(self.metric, *self.matchers)

    @property
    def gauge(self) -> Expr:
        """The current values of a gauge."""
        return promql.gauge(self.metric, *self.matchers)


class Indicator(ABC):
    """Counts events and errors between evaluations, per combination of labels."""

    timed: ClassVar[bool] = False
    """Whether an event is an evaluation, so that events are time."""

    @property
    @abstractmethod
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""

    @abstractmethod
    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return the number of events."""

    @abstractmethod
    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return the number of bad events of these *events*, 0 if none."""

    def scaled(self, scale: float) -> Self:
        """Return it with its own durations, if it has any, divided by *scale*."""
        del scale
        return self


@dataclass(frozen=True)
class Ratio(Indicator):
    """Events that count as errors, given as the *bad* ones or as the *good* ones."""

    total: Selector
    bad: Selector | None = None
    good: Selector | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""
        selectors = (self.total, self.bad, self.good)
        return tuple(selector.metric for selector in selectors if selector is not None)

    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return the number of events."""
        return counted(self.total.counter, when).sum(*by)

    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return the number of bad events, 0 if none."""
        if self.bad:
            return counted(self.bad.counter, when).sum(*by).or_(events * 0)
        assert self.good is not None  # noqa: S101 - the loader takes one of the two
        return _remaining(events, counted(self.good.counter, when).sum(*by))


@dataclass(frozen=True)
class LatencyIndicator(Indicator):
    """
    Observations of a histogram above *threshold*, in the unit of the metric. If that is
    no bucket bound, those *between* the bounds next to it count as evenly distributed.
    """

    histogram: Selector
    threshold: float
    between: tuple[float, float] | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""
        return (self.histogram.metric,)

    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return the number of observations."""
        return counted(self.histogram.counter, when).sum(*by)

    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return the number of observations that took longer."""

        def within(bound: float) -> Expr:
            return counted(self.histogram.histogram.at_most(bound), when).sum(*by)

        if self.between is None:
            return _remaining(events, within(self.threshold))
        low, high = self.between
        share = round((self.threshold - low) / (high - low), 6)
        above = within(high) * share
        below = within(low) * round(1 - share, 6)
        return _remaining(events, below + above)


def _remaining(events: Expr, good: Expr) -> Expr:
    # Of metrics of others, one may be scraped with a count that the other still lacks.
    return promql.call("clamp_min", events - good.or_(events * 0), 0)


@dataclass(frozen=True)
class Freshness(Indicator):
    """
    Time during which something was older than *within*: *age* is a gauge in seconds.

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


@dataclass(frozen=True)
class Throughput(Indicator):
    """Time with fewer than *floor* events a second over five minutes."""

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

    def _rate(self, by: tuple[str, ...]) -> Expr:
        return self.total.counter.rate(_RATE_WINDOW).sum(*by)
