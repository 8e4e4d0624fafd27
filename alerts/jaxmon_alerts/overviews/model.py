"""A recorded series, as rules write it and as dashboards read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxmon.catalog import RUNTIME_INFO, Metric
from jaxmon.host.formats import durations
from jaxmon.promql import Expr, Matcher, RecordedSeries, counter, gauge, recorded
from jaxmon.promql.events import Events
from jaxmon.promql.expressions import SCRAPED_LABELS
from jaxmon_alerts.slo.recording import Rule, recording


PROCESS = SCRAPED_LABELS
HOST = ("job", "instance")


@dataclass(frozen=True, slots=True)
class Windows:
    """
    Windows of the rules: over which things are counted; after which a counter without a
    sample is a new one; in which a process that backs off starts again; in which a
    target that is down has an alert; and how long a process counts as starting.
    """

    recent: str = "5m"
    memory: str = "10m"
    restarts: str = "10m"
    silent: str = "20m"
    young: str = "3m"

    @classmethod
    def scaled(cls, scale: float) -> Windows:
        """Return all of them divided by *scale*; the names of series keep theirs."""
        every = (getattr(_NOMINAL, name) for name in cls.__slots__)
        return cls(*(durations.scaled(window, scale) for window in every))

    def per_second(self, rise: Expr) -> Expr:
        """Return the rise over `recent` as a rate, also of series that are born."""
        rate = rise / durations.seconds(self.recent)
        return rate.of_unit(rise.shape.rated().unit or "")


_NOMINAL = Windows()


_OPERATIONS = {
    "sum": "Sum",
    "max": "Maximum",
    "min": "Minimum",
    "avg": "Mean",
    "count": "Number of series",
    "mean5m": "Mean within 5m",
    "rate5m": "Rate per second within 5m",
    "increase5m": "Increase within 5m",
}


@dataclass(frozen=True, slots=True)
class OverviewRule:
    """
    A recorded series: the *operations* on a *metric*, the last one first, and a *text*
    that says what that is, if the operations do not.
    """

    metric: Metric
    operations: str
    made: Expr | Callable[[Windows], Expr]
    text: str = ""

    @property
    def name(self) -> str:
        """Return ``level:metric:operations``; its labels are the level's, at least."""
        metric = self.metric.name.removesuffix("_total")
        labels = self._labels
        level = next(
            (label for label in ("worker", "instance") if label in labels), "job"
        )
        buckets = "_bucket" if "le" in labels else ""
        return f"{level}:{metric}{buckets}:{self.operations}"

    def __call__(self, *matchers: Matcher) -> Expr:
        """Return the series that *matchers* select."""
        unit = self._expr(_NOMINAL).shape.unit or ""
        return recorded(self.name, *matchers, labels=self._labels, unit=unit)

    def rule(self, windows: Windows) -> Rule:
        """Return the rule that records it."""
        labels = ", ".join(label for label in self._labels if label != "le")
        what = self.text or _OPERATIONS[self.operations]
        sentence = f"{what} by {labels}. {self.metric.help}"
        return recording(RecordedSeries(self.name, self._expr(windows), sentence))

    @property
    def _labels(self) -> tuple[str, ...]:
        return tuple(sorted(self._expr(_NOMINAL).shape.labels or ()))

    def _expr(self, windows: Windows) -> Expr:
        return self.made if isinstance(self.made, Expr) else self.made(windows)


def rules_of(
    module: Mapping[str, object], *others: tuple[OverviewRule, ...]
) -> tuple[OverviewRule, ...]:
    """Return the rules that a *module* has so far, in order, without the *others*."""
    found = (of for of in module.values() if isinstance(of, OverviewRule))
    return tuple(of for of in found if not any(of in rules for rules in others))


def of_agents(series: Expr) -> Expr:
    """Return *series* of agents alone; others have ``process_…`` metrics, too."""
    return series.and_(gauge(RUNTIME_INFO), *PROCESS)


def gauged(metric: Metric, how: str, *by: str, rare: bool = False) -> OverviewRule:
    """Return an aggregation of a gauge, *how* as in `Expr`; if *rare*, without 0."""
    made: Expr = getattr(gauge(metric), how)(*by)
    return OverviewRule(metric, how, made > 0 if rare else made)


def rated(metric: Metric, *by: str, rare: bool = False) -> OverviewRule:
    """Return the rate of a counter; *rare* as for `gauged`."""

    def made(window: Windows) -> Expr:
        found = counter(metric).rate(window.recent).sum(*by)
        return found > 0 if rare else found

    return OverviewRule(metric, "rate5m", made)


def counted(events: Events, *by: str) -> OverviewRule:
    """Return how many *events* there were."""
    return OverviewRule(
        events.metric,
        "increase5m",
        lambda window: events.within(window.recent).sum(*by),
    )


def rising(events: Events, *by: str) -> OverviewRule:
    """Return the rate of *events*."""
    return OverviewRule(
        events.metric,
        "rate5m",
        lambda window: window.per_second(events.within(window.recent)).sum(*by),
    )
