"""
Service-level indicators: events and bad events.

Both are increases over a window, so their quotient is the error ratio. If the error
series does not exist yet, there were no errors; if there were no events, there is no
ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.promql import Counter, Expr, Matcher
from jaxmon.artifacts.promql.shape import SCRAPED_LABELS
from jaxmon.artifacts.slo import durations
from jaxmon.catalog import Metric


@dataclass(frozen=True, slots=True)
class Selector:
    """Series of one metric."""

    metric: Metric
    matchers: tuple[Matcher, ...] = ()

    def counter(self, *matchers: Matcher) -> Counter:
        """Return what is counted: a counter, or the observations of a histogram."""
        every = (*self.matchers, *matchers)
        if self.metric.kind == "histogram":
            return promql.histogram(self.metric, *every).count
        return promql.counter(self.metric, *every)


class Indicator(Protocol):
    """Counts events and errors over a window, per combination of the labels *by*."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""

    def events(self, window: str, by: tuple[str, ...], *matchers: Matcher) -> Expr:
        """Return the number of events."""

    def errors(self, window: str, by: tuple[str, ...], *matchers: Matcher) -> Expr:
        """Return the number of bad events, 0 if none."""

    def scaled(self, scale: float) -> Self:
        """Return it with its own durations divided by *scale*."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Events that count as errors, given as the *bad* ones or as the *good* ones."""

    total: Selector
    bad: Selector | None = None
    good: Selector | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""
        selectors = (self.total, self.bad, self.good)
        return tuple(one.metric for one in selectors if one is not None)

    def events(self, window: str, by: tuple[str, ...], *matchers: Matcher) -> Expr:
        """Return the number of events."""
        return self.total.counter(*matchers).increase(window).sum(*by)

    def errors(self, window: str, by: tuple[str, ...], *matchers: Matcher) -> Expr:
        """Return the number of bad events, 0 if none."""
        events = self.events(window, by, *matchers)
        if self.bad:
            bad = self.bad.counter(*matchers).increase(window).sum(*by)
            return bad.or_(events * 0)
        assert self.good is not None  # noqa: S101 - the loader takes one of the two
        good = self.good.counter(*matchers).increase(window).sum(*by)
        # Two series are rarely extrapolated alike: the difference can dip below 0.
        return promql.call("clamp_min", events - good.or_(events * 0), 0)

    def scaled(self, scale: float) -> Self:
        """Return itself: it has no duration."""
        del scale
        return self


@dataclass(frozen=True, slots=True)
class Latency:
    """Observations of a histogram above *threshold*, one of its bucket bounds."""

    histogram: Selector
    threshold: float

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""
        return (self.histogram.metric,)

    def events(self, window: str, by: tuple[str, ...], *matchers: Matcher) -> Expr:
        """Return the number of observations."""
        return self.histogram.counter(*matchers).increase(window).sum(*by)

    def errors(self, window: str, by: tuple[str, ...], *matchers: Matcher) -> Expr:
        """Return the number of observations that took longer."""
        every = (*self.histogram.matchers, *matchers)
        family = promql.histogram(self.histogram.metric, *every)
        fast = family.at_most(self.threshold).increase(window).sum(*by)
        events = self.events(window, by, *matchers)
        return promql.call("clamp_min", events - fast, 0)

    def scaled(self, scale: float) -> Self:
        """Return itself: latency does not scale."""
        del scale
        return self


@dataclass(frozen=True, slots=True)
class Freshness:
    """
    Time during which a timestamp was older than *within*.

    An event is one evaluation of the timestamp, an error one that finds it stale. A
    series that has ended is not evaluated: what has stopped is not late. Nor is a
    process that compiles: that is progress, and JaxmonTrainingStalled fires if it takes
    too long.
    """

    timestamp: Selector
    within: str

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""
        return (self.timestamp.metric,)

    def events(self, window: str, by: tuple[str, ...], *matchers: Matcher) -> Expr:
        """Return the number of evaluations."""
        return self._late(matchers).over("count", window, self._resolution).sum(*by)

    def errors(self, window: str, by: tuple[str, ...], *matchers: Matcher) -> Expr:
        """Return the number of evaluations that found it stale."""
        return self._late(matchers).over("sum", window, self._resolution).sum(*by)

    def scaled(self, scale: float) -> Self:
        """Return it with *within* divided by *scale*."""
        return replace(self, within=durations.scaled(self.within, scale))

    def _late(self, matchers: tuple[Matcher, ...]) -> Expr:
        every = (*self.timestamp.matchers, *matchers)
        age = promql.time() - promql.gauge(self.timestamp.metric, *every)
        compiling = promql.gauge(catalog.COMPILE_OLDEST_SECONDS) > 0
        late = age.above(durations.seconds(self.within))
        return late.unless(compiling, *SCRAPED_LABELS)

    @property
    def _resolution(self) -> str:
        # Fine enough to see a stale spell soon, coarse enough to be cheap over days.
        return durations.text(durations.seconds(self.within) / 5)
