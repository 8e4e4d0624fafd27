"""
Type-checked PromQL from catalogue metrics.

A counter can only be rated, a histogram only quantiled or bucket-counted, a gauge only
read; labels must be the metric's own or the scraper's; a bucket bound must exist. The
result is text that Prometheus 2.42 can parse. This module has what Prometheus stores,
and conditions on its labels: counters, gauges and histograms of the catalogue, recorded
series, and its own ``up`` and ``ALERTS``; `expressions` has the operations on them.

    >>> from jaxmon.catalog import JIT_CALLS
    >>> str(counter(JIT_CALLS, re("job", "$job")).rate("5m").sum("function"))
    'sum by (function) (rate(jaxmon_jit_calls_total{job=~"$job"}[5m]))'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.host.formats import durations
from jaxmon.promql.expressions import PLACE as PLACE
from jaxmon.promql.expressions import RATE_INTERVAL as RATE_INTERVAL
from jaxmon.promql.expressions import (
    SCRAPED_LABELS,
    ExpressionType,
    checked,
    offset,
    shape_of,
)
from jaxmon.promql.expressions import Expr as Expr
from jaxmon.promql.expressions import RecordedSeries as RecordedSeries
from jaxmon.promql.expressions import call as call
from jaxmon.promql.expressions import number as number
from jaxmon.promql.expressions import ratio as ratio
from jaxmon.promql.expressions import time as time


# Alerts have the labels of their expression and their rule: too many to say.
_ALERTS = ExpressionType(frozenset(["ALERTS"]), unit="")


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label: that it is the *value*, or as the *operator* says."""

    label: str
    value: str
    operator: Literal["=", "!=", "=~", "!~"] = "="

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"')
        text = escaped.replace("\n", "\\n")
        return f'{self.label}{self.operator}"{text}"'


eq = Matcher
ne = partial(Matcher, operator="!=")
# Patterns match in full.
re = partial(Matcher, operator="=~")


@dataclass(frozen=True, slots=True)
class Counter:
    """Monotonic series; only useful with `rate` or `increase`."""

    selector: str
    shape: ExpressionType = field(default=ExpressionType(), compare=False, repr=False)

    def rate(self, window: str = RATE_INTERVAL) -> Expr:
        """Return the rise per second over *window*."""
        text = f"rate({self.selector}[{checked(window)}])"
        return Expr(text, shape=self.shape.rated())

    def increase(self, window: str = RATE_INTERVAL) -> Expr:
        """Return the rise over *window*."""
        text = f"increase({self.selector}[{checked(window)}])"
        return Expr(text, shape=self.shape)

    def rise(self, window: str = RATE_INTERVAL, *, memory: str = "1h") -> Expr:
        """
        Return the rise over *window*, including series whose first sample is nonzero,
        for which `increase` returns 0; without a sample for *memory*, a series is new.
        For what a sidecar counts and for distributions: it misses what a process counts
        as its predecessor did; see `jaxmon.promql.events`.
        """
        return self.born(window, memory=memory).or_(self.increase(window))

    def born(self, window: str, *, memory: str = "1h") -> Expr:
        """Return the series whose first sample is within *window*."""
        born = self.total().unless(self.latest(memory, back=window))
        return _new(born, window, memory)

    def mishaps(self, window: str = RATE_INTERVAL, *, memory: str = "1h") -> Expr:
        """Return `rise` only for series that changed; cheaper when few did."""
        born = (self.total() > 0).unless(self.latest(memory, back=window) > 0)
        return _new(born, window, memory).or_(self.increase(window) > 0)

    def latest(self, window: str, *, back: str = "") -> Expr:
        """Return the latest count within *window*, as of *back* ago."""
        text = f"last_over_time({self.selector}[{checked(window)}]{offset(back)})"
        return Expr(text, shape=self.shape)

    def highest(self, window: str) -> Expr:
        """Return the highest count within *window*, also of series that ended."""
        text = f"max_over_time({self.selector}[{checked(window)}])"
        return Expr(text, shape=self.shape)

    def total(self) -> Expr:
        """Return the count since the process started; for instant tables only."""
        return Expr(self.selector, shape=self.shape)


@dataclass(frozen=True, slots=True)
class HistogramQuery:
    """Buckets, count and sum; if *rare*, the first observation matters."""

    metric: Metric
    matchers: tuple[Matcher, ...]
    rare: bool = False

    def quantile(self, q: float, *by: str, window: str = RATE_INTERVAL) -> Expr:
        """Estimate the *q* quantile (0 to 1) per combination of the labels *by*."""
        buckets = self._rise(self._series("bucket"), window)
        return buckets.quantile(q, *by).of_unit(self.metric.unit)

    def mean(self, *by: str, window: str = RATE_INTERVAL) -> Expr:
        """Return the mean per combination of the labels *by*."""
        total = self._rise(self.sum, window).sum(*by)
        number = self._rise(self.count, window).sum(*by)
        return (total / number).of_unit(self.metric.unit)

    @property
    def count(self) -> Counter:
        """How many observations there were."""
        return self._series("count")

    @property
    def bucket(self) -> Counter:
        """How many observations there were, up to each bound."""
        return self._series("bucket")

    @property
    def sum(self) -> Counter:
        """What the observations add up to."""
        return self._series("sum")

    def at_most(self, bound: float) -> Counter:
        """Return the count of observations up to *bound*, or `ValueError`."""
        if bound not in self.metric.buckets:
            bounds = ", ".join(f"{b:g}" for b in self.metric.buckets)
            msg = f"{self.metric.name} has no bucket {bound:g}; it has {bounds}"
            raise ValueError(msg)
        # Prometheus, clients and OTLP write whole numbers as "1" or as "1.0".
        text = str(float(bound))
        whole = text.removesuffix(".0")
        return self._series(
            "bucket",
            eq("le", text) if whole == text else re("le", rf"{whole}|{whole}\.0"),
        )

    def buckets(
        self, *by: str, window: str = RATE_INTERVAL, memory: str = "1h"
    ) -> Expr:
        """Return the increase of each bucket; *memory* as in `Counter.rise`."""
        series = self._series("bucket")
        rise = (
            series.rise(window, memory=memory) if self.rare else series.increase(window)
        )
        return rise.sum("le", *by)

    def observed(self, window: str, *by: str) -> Expr:
        """Return how many observations there were within *window*."""
        return self._rise(self.count, window).sum(*by)

    def _rise(self, series: Counter, window: str) -> Expr:
        # Where rises are divided by each other, those per second do as well.
        return series.rise(window) if self.rare else series.rate(window)

    def _series(
        self, suffix: Literal["bucket", "count", "sum"], *more: Matcher
    ) -> Counter:
        shape = shape_of(self.metric)
        labels = shape.labels
        if suffix == "bucket" and labels is not None:
            labels |= {"le"}
        unit = shape.unit if suffix == "sum" else ""
        return Counter(
            _selector(f"{self.metric.name}_{suffix}", (*self.matchers, *more)),
            ExpressionType(shape.metrics, labels, unit),
        )


def _new(born: Expr, window: str, memory: str) -> Expr:
    """Leave out processes that are old, and unknown because Prometheus was away."""
    if "$" in window:
        return born  # one of Grafana's; people see where a line begins
    uptime = catalog.UPTIME_SECONDS
    seen = gauge_over(uptime, "last", memory, back=window)
    unseen = (gauge(uptime) > durations.seconds(window)).unless(seen, *SCRAPED_LABELS)
    unseen = unseen.record(
        *("worker", uptime, f"unseen{window}_{memory}"),
        f"Processes older than {window} without a sample within {memory} before that: "
        "what they counted meanwhile is unknown.",
    )
    return born.unless(unseen, *SCRAPED_LABELS)


def counter(metric: Metric, *matchers: Matcher) -> Counter:
    """Return the series of a counter."""
    _check(metric, matchers, "counter")
    return Counter(_selector(metric.name, matchers), shape_of(metric))


def gauge(metric: Metric, *matchers: Matcher) -> Expr:
    """Return the current values of a gauge or an info metric."""
    _check(metric, matchers, "gauge", "info")
    return Expr(_selector(metric.name, matchers), shape=shape_of(metric))


def gauge_over(
    metric: Metric,
    function: Literal["avg", "max", "min", "last"],
    window: str,
    *matchers: Matcher,
    back: str = "",
) -> Expr:
    """Return a gauge aggregated over *window*, as of *back* ago."""
    selector = gauge(metric, *matchers)
    text = f"{function}_over_time({selector}[{checked(window)}]{offset(back)})"
    return Expr(text, shape=selector.shape)


def gauge_slope(metric: Metric, window: str, *matchers: Matcher) -> Expr:
    """Return the slope per second of a gauge over *window*, by linear regression."""
    text = f"deriv({gauge(metric, *matchers)}[{checked(window)}])"
    return Expr(text, shape=shape_of(metric).rated())


def gauge_changes(metric: Metric, window: str, *matchers: Matcher) -> Expr:
    """Return how often a gauge changed within *window*."""
    text = f"changes({gauge(metric, *matchers)}[{checked(window)}])"
    return Expr(text, shape=shape_of(metric).measured(""))


def histogram(metric: Metric, *matchers: Matcher, rare: bool = False) -> HistogramQuery:
    """Return the series of a histogram; *rare* as in `HistogramQuery`."""
    _check(metric, matchers, "histogram")
    return HistogramQuery(metric, matchers, rare)


def up(*matchers: Matcher) -> Expr:
    """Return whether Prometheus could scrape its targets."""
    shape = ExpressionType(frozenset(["up"]), frozenset(["job", "instance"]), "")
    return Expr(_selector("up", matchers), shape=shape)


def alerts(*matchers: Matcher) -> Expr:
    """Return 1 for each pending and firing alert."""
    return Expr(_selector("ALERTS", matchers), shape=_ALERTS)


def alerts_since(*matchers: Matcher) -> Expr:
    """Return since when each alert has been pending or firing, as a Unix timestamp."""
    shape = _ALERTS.measured("seconds")
    return Expr(_selector("ALERTS_FOR_STATE", matchers), shape=shape)


def recorded(
    name: str, *matchers: Matcher, labels: tuple[str, ...] = (), unit: str = "ratio"
) -> Expr:
    """Return the series of a recording rule (``level:metric:operations``)."""
    if ":" not in name:
        msg = f"{name!r} is not a recording rule; use counter, gauge or histogram"
        raise ValueError(msg)
    shape = ExpressionType(
        frozenset([name]), frozenset(labels) if labels else None, unit
    )
    return Expr(_selector(name, matchers), shape=shape)


def recorded_over(
    function: Literal["avg", "last", "min", "sum"],
    series: Expr,
    window: int | str,
    *,
    back: str = "",
) -> Expr:
    """
    Return the values of a recorded *series* aggregated over *window*, as of *back* ago.
    It is Grafana's, or in seconds, a millisecond less: Prometheus 2 includes the sample
    at its start, which rules evaluated at the same time hit exactly, and 3 does not.
    """
    if isinstance(window, int):
        days, rest = divmod(window - 1, 86400)
        hours, rest = divmod(rest, 3600)
        units = {"d": days, "h": hours, "m": rest // 60, "s": rest % 60, "ms": 999}
        window = "".join(f"{count}{unit}" for unit, count in units.items() if count)
    text = f"{function}_over_time({series.marked}[{window}]{offset(back)})"
    return Expr(text, shape=series.shape)


def _check(metric: Metric, matchers: tuple[Matcher, ...], *kinds: str) -> None:
    if metric.kind not in kinds:
        msg = f"{metric.name} is a {metric.kind}, not a {' or '.join(kinds)}"
        raise ValueError(msg)
    check(metric, matchers)


def check(metric: Metric, matchers: Iterable[Matcher]) -> None:
    """Raise a `ValueError` if *metric* has no such label, or it never has the value."""
    allowed = (*metric.labels, *SCRAPED_LABELS)
    for matcher in matchers:
        if matcher.label not in allowed:
            msg = (
                f"{metric.name} has no label {matcher.label!r}; it has "
                f"{', '.join(allowed)}"
            )
            raise ValueError(msg)
        values = dict(metric.values).get(matcher.label)
        if values and matcher.operator in ("=", "!=") and matcher.value not in values:
            msg = (
                f"{matcher.label}={matcher.value!r} never occurs on {metric.name}; "
                f"values are {', '.join(values)}"
            )
            raise ValueError(msg)


def _selector(name: str, matchers: tuple[Matcher, ...]) -> str:
    return f"{name}{{{','.join(map(str, matchers))}}}" if matchers else name


def records(found: Iterable[Expr]) -> dict[str, RecordedSeries]:
    """
    Return what rules must record for expressions, by name, each after what it reads.
    Raises `ValueError`: a name has two meanings.
    """
    every: dict[str, RecordedSeries] = {}
    for record in (record for expr in found for record in expr.shape.records):
        for needed in (*records([record.expr]).values(), record):
            if every.setdefault(needed.name, needed) != needed:
                msg = f"{needed.name} is recorded of two expressions"
                raise ValueError(msg)
    return every
