"""A recorded series, as rules write it and as dashboards read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxmon.catalog import RUNTIME_INFO, Metric
from jaxmon.host.formats import durations
from jaxmon.promql import Expr, Matcher, counter, gauge, recorded
from jaxmon.promql.events import Events
from jaxmon.promql.shape import SCRAPED_LABELS, ExpressionType


PROCESS = SCRAPED_LABELS
HOST = ("job", "instance")


@dataclass(frozen=True, slots=True)
class Windows:
    """
    Windows of the rules.

    Args:
        recent: over which things are counted.
        known: a counter without a sample for this long is a new one.
        restarts: long enough for a process that backs off before it starts again.
        silent: a target that is down has an alert in less than this.
        young: how long a process counts as one that starts; two scrapes a minute apart.
    """

    recent: str = "5m"
    known: str = "10m"
    restarts: str = "10m"
    silent: str = "20m"
    young: str = "3m"

    @classmethod
    def scaled(cls, scale: float) -> Windows:
        """Return all of them divided by *scale*; the names of series keep theirs."""
        every = (getattr(_NOMINAL, name) for name in cls.__slots__)
        return cls(*(durations.scaled(one, scale) for one in every))

    def per_second(self, rise: Expr) -> Expr:
        """Return the rise over `recent` as a rate, also of series that are born."""
        rate = rise / durations.seconds(self.recent)
        return rate.of_unit(rise.shape.rated().unit or "")


_NOMINAL = Windows()


@dataclass(frozen=True, slots=True)
class OverviewRule:
    """
    A recorded series.

    Args:
        level: ``job``, ``instance`` or ``worker``: the labels of every service, host or
            process, besides which it may have others.
        metric: what it is about.
        operations: what was done with it, the last one first.
        make: returns what is recorded.
    """

    level: str
    metric: Metric
    operations: str
    make: Callable[[Windows], Expr]

    @property
    def name(self) -> str:
        """Return ``level:metric:operations``."""
        metric = self.metric.name.removesuffix("_total")
        buckets = "_bucket" if "le" in (self._shape.labels or ()) else ""
        return f"{self.level}:{metric}{buckets}:{self.operations}"

    @property
    def _shape(self) -> ExpressionType:
        return self.make(_NOMINAL).shape

    def __call__(self, *matchers: Matcher) -> Expr:
        """Return the series that *matchers* select."""
        shape = self._shape
        labels = tuple(sorted(shape.labels or ()))
        return recorded(self.name, *matchers, labels=labels, unit=shape.unit or "")

    def rule(self, windows: Windows) -> dict[str, str]:
        """Return the rule that records it."""
        return {"record": self.name, "expr": str(self.make(windows))}


def of_agents(series: Expr) -> Expr:
    """
    Return *series* of agents alone; other exporters have metrics called ``process_…``.
    """
    return series.and_(gauge(RUNTIME_INFO), *PROCESS)


def gauged(metric: Metric, how: str, *by: str, rare: bool = False) -> OverviewRule:
    """
    Return an aggregation of a gauge, *how* as `Expr` has it; if it is *rare* that it is
    not 0, nothing else is recorded.
    """

    def make(_: Windows) -> Expr:
        found: Expr = getattr(gauge(metric), how)(*by)
        return found > 0 if rare else found

    return OverviewRule(_level(by), metric, how, make)


def rated(metric: Metric, *by: str, rare: bool = False) -> OverviewRule:
    """Return the rate of a counter; *rare* as for `gauged`."""

    def make(window: Windows) -> Expr:
        found = counter(metric).rate(window.recent).sum(*by)
        return found > 0 if rare else found

    return OverviewRule(_level(by), metric, "rate5m", make)


def counted(events: Events, *by: str) -> OverviewRule:
    """Return how many *events* there were."""
    return OverviewRule(
        _level(by),
        events.metric,
        "increase5m",
        lambda window: events.within(window.recent).sum(*by),
    )


def rising(events: Events, *by: str) -> OverviewRule:
    """Return the rate of *events*."""
    return OverviewRule(
        _level(by),
        events.metric,
        "rate5m",
        lambda window: window.per_second(events.within(window.recent)).sum(*by),
    )


def _level(by: tuple[str, ...]) -> str:
    return next((one for one in ("worker", "instance") if one in by), "job")
