"""
PromQL from catalogue metrics, so that a wrong query cannot be written by accident.

A counter can only be rated, a histogram only quantiled or bucket-counted, a gauge
only read; labels must be the metric's own or the scraper's; a bucket bound must exist.
What comes out is text that Prometheus 2.42 parses.

    >>> from jaxmon.catalog import JIT_CALLS
    >>> str(counter(JIT_CALLS, re("job", "$job")).rate("5m").sum("function"))
    'sum by (function) (rate(jaxmon_jit_calls_total{job=~"$job"}[5m]))'
"""

from __future__ import annotations

import re as regex
from dataclasses import dataclass, field
from typing import Literal

from jaxmon.artifacts.shape import SCALAR, SCRAPED_LABELS, Shape, shape_of
from jaxmon.catalog import Metric


RATE_INTERVAL = "$__rate_interval"
"""Grafana's window for a rate: at least four scrapes."""

_WINDOW = regex.compile(r"\d+(ms|[smhdwy])|\$__(rate_interval|range|interval)")
_ATOMIC, _COMPARED, _SET = 3, 1, 0
# Alerts have the labels of their expression and their rule: too many to say.
_ALERTS = Shape(frozenset(["ALERTS"]), unit="")
_ADDED, _MULTIPLIED = 2, 2.5


@dataclass(frozen=True, slots=True)
class Matcher:
    """
    One condition on a label.
    """

    label: str
    operator: Literal["=", "!=", "=~", "!~"]
    value: str

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{self.label}{self.operator}"{escaped}"'


def eq(label: str, value: str) -> Matcher:
    """
    Match series whose *label* is *value*.
    """
    return Matcher(label, "=", value)


def ne(label: str, value: str) -> Matcher:
    """
    Match series whose *label* is not *value*.
    """
    return Matcher(label, "!=", value)


def re(label: str, pattern: str) -> Matcher:
    """
    Match series whose *label* matches *pattern* in full.
    """
    return Matcher(label, "=~", pattern)


@dataclass(frozen=True, slots=True)
class Expr:
    """
    An instant vector (or scalar) as text, with how tightly it binds.
    """

    text: str
    binding: float = _ATOMIC
    shape: Shape = field(default=Shape(), compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    def sum(self, *by: str) -> Expr:
        """
        Add up, keeping the labels *by*.
        """
        return self._aggregate("sum", by)

    def max(self, *by: str) -> Expr:
        """
        Take the largest, keeping the labels *by*.
        """
        return self._aggregate("max", by)

    def min(self, *by: str) -> Expr:
        """
        Take the smallest, keeping the labels *by*.
        """
        return self._aggregate("min", by)

    def avg(self, *by: str) -> Expr:
        """
        Average, keeping the labels *by*.
        """
        return self._aggregate("avg", by)

    def count(self, *by: str) -> Expr:
        """
        Count the series, keeping the labels *by*.
        """
        return self._aggregate("count", by).of_unit("")

    def of_unit(self, unit: str) -> Expr:
        """
        Return the same with another *unit*, where the real one cannot be derived.
        """
        return Expr(self.text, self.binding, self.shape.measured(unit))

    def topk(self, number: int) -> Expr:
        """
        Keep the *number* largest.
        """
        return Expr(f"topk({number}, {self.text})", shape=self.shape)

    def bottomk(self, number: int) -> Expr:
        """
        Keep the *number* smallest.
        """
        return Expr(f"bottomk({number}, {self.text})", shape=self.shape)

    def __truediv__(self, other: Expr | float) -> Expr:
        return self._binary("/", other, _MULTIPLIED)

    def __mul__(self, other: Expr | float) -> Expr:
        return self._binary("*", other, _MULTIPLIED)

    def __add__(self, other: Expr | float) -> Expr:
        return self._binary("+", other, _ADDED)

    def __sub__(self, other: Expr | float) -> Expr:
        return self._binary("-", other, _ADDED)

    def __gt__(self, other: Expr | float) -> Expr:
        return self._binary(">", other, _COMPARED)

    def __ge__(self, other: Expr | float) -> Expr:
        return self._binary(">=", other, _COMPARED)

    def __lt__(self, other: Expr | float) -> Expr:
        return self._binary("<", other, _COMPARED)

    def equals(self, other: Expr | float) -> Expr:
        """
        Keep the series whose value is *other*'s.
        """
        return self._binary("==", other, _COMPARED)

    def above(self, other: Expr | float) -> Expr:
        """
        Return 1 where a value is more than *other*'s, 0 elsewhere.
        """
        return self._binary("> bool", other, _COMPARED)

    def over(
        self,
        function: Literal["avg", "count", "max", "sum"],
        window: str,
        resolution: str,
    ) -> Expr:
        """
        Fold the values over *window*, evaluated anew every *resolution*.
        """
        subquery = f"({self.text})[{_window(window)}:{_window(resolution)}]"
        return Expr(f"{function}_over_time({subquery})", shape=self.shape)

    def and_(self, other: Expr, *on: str) -> Expr:
        """
        Keep the series that *other* has too, comparing the labels *on* (all by
        default).
        """
        return self._binary(f"and{_on(on)}", other, _SET)

    def or_(self, other: Expr) -> Expr:
        """
        Add the series of *other* that are missing here.
        """
        return self._binary("or", other, _SET)

    def unless(self, other: Expr, *on: str) -> Expr:
        """
        Drop the series that *other* has too, comparing the labels *on* (all by
        default).
        """
        return self._binary(f"unless{_on(on)}", other, _SET)

    def joined(self, info: Expr, on: tuple[str, ...], *, take: tuple[str, ...]) -> Expr:
        """
        Take over the labels *take* from the info metric *info*, matched *on*.
        """
        matching = f"* on ({', '.join(on)}) group_left ({', '.join(take)})"
        product = self._binary(matching, info, _MULTIPLIED)
        labels = self.shape.labels and self.shape.labels.union(take)
        shape = Shape(product.shape.metrics, labels, self.shape.unit)
        return Expr(product.text, product.binding, shape)

    def _aggregate(self, operator: str, by: tuple[str, ...]) -> Expr:
        kept = f" by ({', '.join(by)}) " if by else ""
        return Expr(f"{operator}{kept}({self.text})", shape=self.shape.keeping(by))

    def _binary(self, operator: str, other: Expr | float, binding: float) -> Expr:
        right = other if isinstance(other, Expr) else number(other)
        left_text = self._operand(binding, strict=False)
        right_text = right._operand(binding, strict=True)  # noqa: SLF001 - one of us
        # Without the matching: "and on (job)" combines as "and" does.
        kind = operator.partition(" on ")[0]
        shape = self.shape.beside(right.shape, kind)
        return Expr(f"{left_text} {operator} {right_text}", binding, shape)

    def _operand(self, binding: float, *, strict: bool) -> str:
        loose = self.binding <= binding if strict else self.binding < binding
        # Mixed or chained set operators and comparisons read better in brackets.
        if loose or (self.binding == binding and binding <= _COMPARED):
            return f"({self.text})"
        return self.text


def number(value: float) -> Expr:
    """
    Return a scalar; whole numbers without a decimal point.
    """
    return Expr(f"{value:.12g}", shape=SCALAR)


def time() -> Expr:
    """
    Return the evaluation time as a Unix timestamp.
    """
    return Expr("time()", shape=SCALAR.measured("seconds"))


def call(function: str, *arguments: Expr | str | float) -> Expr:
    """
    Return ``function(arguments…)`` for functions without a rule of their own, such as
    ``vector``, ``clamp_max``, ``sort_desc``.
    """
    shapes = [one.shape for one in arguments if isinstance(one, Expr)]
    vectors = [one for one in shapes if not one.scalar]
    shape = next(iter(vectors or shapes), Shape())
    return Expr(f"{function}({', '.join(map(str, arguments))})", shape=shape)


def recorded(
    name: str, *matchers: Matcher, labels: tuple[str, ...] = (), unit: str = "ratio"
) -> Expr:
    """
    Return the series of a recording rule (``level:metric:operations``).

    Args:
        name: as the rule says it.
        matchers: conditions on the labels.
        labels: those that the series have, where it matters.
        unit: base unit of the values.

    Raises:
        ValueError: *name* is not that of a recording rule.
    """
    if ":" not in name:
        msg = f"{name!r} is not a recording rule; use counter, gauge or histogram"
        raise ValueError(msg)
    shape = Shape(frozenset([name]), frozenset(labels) if labels else None, unit)
    return Expr(_selector(name, matchers), shape=shape)


def recorded_sum(name: str, window: str, *matchers: Matcher) -> Expr:
    """
    Return the values of a recording rule added up over *window*.
    """
    series = recorded(name, *matchers)
    return Expr(f"sum_over_time({series}[{_window(window)}])", shape=series.shape)


@dataclass(frozen=True, slots=True)
class Counter:
    """
    Series that only rise; on its own a counter says nothing.
    """

    selector: str
    shape: Shape = field(default=Shape(), compare=False, repr=False)

    def rate(self, window: str = RATE_INTERVAL) -> Expr:
        """
        Return the rise per second over *window*.
        """
        text = f"rate({self.selector}[{_window(window)}])"
        return Expr(text, shape=self.shape.rated())

    def increase(self, window: str = RATE_INTERVAL) -> Expr:
        """
        Return the rise over *window*.
        """
        text = f"increase({self.selector}[{_window(window)}])"
        return Expr(text, shape=self.shape)

    def rise(self, window: str, *, known: str = "1h") -> Expr:
        """
        Return where and by how much the count rose within *window*, also of series
        that were born with a value, which `increase` takes for a rise of 0.

        Args:
            window: how far back.
            known: a series without a sample for this long before is a new one.
        """
        rises = self.increase(window) > 0
        text = f"last_over_time({self.selector}[{_window(known)}] offset {window})"
        born = self.total().unless(Expr(text, shape=self.shape)) > 0
        return rises.or_(born)

    def total(self) -> Expr:
        """
        Return the count since the process started; for instant tables only.
        """
        return Expr(self.selector, shape=self.shape)


@dataclass(frozen=True, slots=True)
class Histogram:
    """
    Buckets, count and sum of one metric.
    """

    metric: Metric
    matchers: tuple[Matcher, ...]

    def quantile(self, q: float, *by: str, window: str = RATE_INTERVAL) -> Expr:
        """
        Estimate the *q* quantile (0 to 1) per combination of the labels *by*.
        """
        if not 0 <= q <= 1:
            msg = f"quantile {q} is not within 0 to 1"
            raise ValueError(msg)
        buckets = self._series("bucket").rate(window).sum("le", *by)
        shape = shape_of(self.metric).keeping(by)
        return Expr(f"histogram_quantile({q:g}, {buckets})", shape=shape)

    def mean(self, *by: str, window: str = RATE_INTERVAL) -> Expr:
        """
        Return the mean per combination of the labels *by*.
        """
        total, number = self.sum.rate(window).sum(*by), self.count.rate(window).sum(*by)
        return (total / number).of_unit(self.metric.unit)

    @property
    def count(self) -> Counter:
        """
        How many observations there were.
        """
        return self._series("count")

    @property
    def sum(self) -> Counter:
        """
        What the observations add up to.
        """
        return self._series("sum")

    def at_most(self, bound: float) -> Counter:
        """
        Return the count of observations up to *bound*, in the unit of the metric.

        Raises:
            ValueError: the histogram has no bucket that ends there.
        """
        if bound not in self.metric.buckets:
            bounds = ", ".join(f"{b:g}" for b in self.metric.buckets)
            msg = f"{self.metric.name} has no bucket {bound:g}; it has {bounds}"
            raise ValueError(msg)
        return self._series("bucket", eq("le", str(float(bound))))

    def buckets(self, *by: str, window: str = RATE_INTERVAL) -> Expr:
        """
        Return the rise of each bucket, for a heatmap.
        """
        return self._series("bucket").increase(window).sum("le", *by)

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
            Shape(shape.metrics, labels, unit),
        )


def counter(metric: Metric, *matchers: Matcher) -> Counter:
    """
    Return the series of a counter.
    """
    _check(metric, matchers, "counter")
    return Counter(_selector(metric.name, matchers), shape_of(metric))


def gauge(metric: Metric, *matchers: Matcher) -> Expr:
    """
    Return the current values of a gauge or an info metric.
    """
    _check(metric, matchers, "gauge", "info")
    return Expr(_selector(metric.name, matchers), shape=shape_of(metric))


def gauge_over(
    metric: Metric,
    function: Literal["avg", "max", "min", "last"],
    window: str,
    *matchers: Matcher,
) -> Expr:
    """
    Return a gauge folded over *window*.
    """
    selector = gauge(metric, *matchers)
    text = f"{function}_over_time({selector}[{_window(window)}])"
    return Expr(text, shape=selector.shape)


def gauge_slope(metric: Metric, window: str, *matchers: Matcher) -> Expr:
    """
    Return the slope per second of a gauge over *window*, by linear regression.
    """
    text = f"deriv({gauge(metric, *matchers)}[{_window(window)}])"
    return Expr(text, shape=shape_of(metric).rated())


def gauge_changes(metric: Metric, window: str, *matchers: Matcher) -> Expr:
    """
    Return how often a gauge took another value within *window*.
    """
    text = f"changes({gauge(metric, *matchers)}[{_window(window)}])"
    return Expr(text, shape=shape_of(metric).measured(""))


def histogram(metric: Metric, *matchers: Matcher) -> Histogram:
    """
    Return the series of a histogram.
    """
    _check(metric, matchers, "histogram")
    return Histogram(metric, matchers)


def up(*matchers: Matcher) -> Expr:
    """
    Return whether Prometheus could scrape its targets.
    """
    shape = Shape(frozenset(["up"]), frozenset(["job", "instance"]), "")
    return Expr(_selector("up", matchers), shape=shape)


def alerts(*matchers: Matcher) -> Expr:
    """
    Return 1 for each pending and firing alert.
    """
    return Expr(_selector("ALERTS", matchers), shape=_ALERTS)


def alerts_since(*matchers: Matcher) -> Expr:
    """
    Return since when each alert has been pending or firing, as a Unix timestamp.
    """
    shape = _ALERTS.measured("seconds")
    return Expr(_selector("ALERTS_FOR_STATE", matchers), shape=shape)


def ratio(part: Expr, whole: Expr) -> Expr:
    """
    Return *part* / *whole*, nothing where *whole* is 0: no traffic is no answer.
    """
    return part / (whole > 0)


def _check(metric: Metric, matchers: tuple[Matcher, ...], *kinds: str) -> None:
    if metric.kind not in kinds:
        msg = f"{metric.name} is a {metric.kind}, not a {' or '.join(kinds)}"
        raise ValueError(msg)
    allowed = (*metric.labels, *SCRAPED_LABELS)
    for matcher in matchers:
        if matcher.label not in allowed:
            msg = (
                f"{metric.name} has no label {matcher.label!r}; it has "
                f"{', '.join(allowed)}"
            )
            raise ValueError(msg)


def _selector(name: str, matchers: tuple[Matcher, ...]) -> str:
    return f"{name}{{{','.join(map(str, matchers))}}}" if matchers else name


def _window(window: str) -> str:
    if not _WINDOW.fullmatch(window):
        msg = f"{window!r} is not a window such as 5m, 1h or {RATE_INTERVAL}"
        raise ValueError(msg)
    return window


def _on(labels: tuple[str, ...]) -> str:
    return f" on ({', '.join(labels)})" if labels else ""
