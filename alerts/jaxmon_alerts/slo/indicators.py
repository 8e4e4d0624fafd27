"""
Service-level indicators that count events: requests, calls, observations.

Each yields, per combination of some labels, the events and the bad events since the
previous evaluation of the rule; see `jaxmon.promql.counting`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from jaxmon import promql
from jaxmon.catalog import Metric
from jaxmon.promql import Counter, Expr, HistogramQuery, Matcher
from jaxmon.promql.counting import Evaluation, counted


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


class Indicator(Protocol):
    """Counts events and errors between evaluations, per combination of labels."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""

    @property
    def timed(self) -> bool:
        """Whether an event is an evaluation, so that events are time."""

    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return the number of events."""

    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return the number of bad events of these *events*, 0 if none."""

    def scaled(self, scale: float) -> Self:
        """Return it with its own durations divided by *scale*."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Events that count as errors, given as the *bad* ones or as the *good* ones."""

    total: Selector
    bad: Selector | None = None
    good: Selector | None = None
    timed = False

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""
        selectors = (self.total, self.bad, self.good)
        return tuple(one.metric for one in selectors if one is not None)

    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return the number of events."""
        return counted(self.total.counter, when).sum(*by)

    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return the number of bad events, 0 if none."""
        if self.bad:
            return counted(self.bad.counter, when).sum(*by).or_(events * 0)
        assert self.good is not None  # noqa: S101 - the loader takes one of the two
        good = counted(self.good.counter, when).sum(*by)
        return _remaining(events, good)

    def scaled(self, scale: float) -> Self:
        """Return itself: it has no duration."""
        del scale
        return self


@dataclass(frozen=True, slots=True)
class LatencyIndicator:
    """
    Observations of a histogram above *threshold*.

    Args:
        histogram: what is observed.
        threshold: in the unit of the metric.
        between: the bucket bounds next to a threshold that is none; observations
            between them are taken for evenly distributed.
    """

    histogram: Selector
    threshold: float
    between: tuple[float, float] | None = None
    timed = False

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

    def scaled(self, scale: float) -> Self:
        """Return itself: latency does not scale."""
        del scale
        return self


def _remaining(events: Expr, good: Expr) -> Expr:
    # Of metrics of others, one may be scraped with a count that the other still lacks.
    return promql.call("clamp_min", events - good.or_(events * 0), 0)
