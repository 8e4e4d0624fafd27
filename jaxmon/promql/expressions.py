"""
Instant vectors and scalars, and operations on them. What an expression yields is worked
out while it is built, so that a dashboard can take its unit, name its metrics and
reject a legend with a missing label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partialmethod
from typing import Literal

from jaxmon.catalog import Metric


PER_SECOND = "per second"
"""Unit of a rate of things that have none: calls, steps, errors."""

# Labels that the scraper or the sidecar adds to every series.
SCRAPED_LABELS = ("job", "instance", "worker")

_RATES = {
    "": PER_SECOND,
    "bytes": "bytes per second",
    "joules": "watts",
    # Seconds per second: a fraction of time.
    "seconds": "ratio",
}


@dataclass(frozen=True, slots=True)
class ExpressionType:
    """
    What an expression yields: the names it reads, labels and unit (a base unit as in
    the catalogue or one per second, ``""`` for counts), `None` if unknown, as for a
    product of two units; whether it is a scalar; what rules must record for it.
    """

    metrics: frozenset[str] = frozenset()
    labels: frozenset[str] | None = None
    unit: str | None = None
    scalar: bool = False
    records: tuple[RecordedSeries, ...] = ()

    def keeping(self, labels: Iterable[str]) -> ExpressionType:
        """Return the shape after an aggregation by *labels*, or `ValueError`."""
        kept = frozenset(labels)
        if self.labels is not None and not kept <= self.labels:
            wrong, present = sorted(kept - self.labels), sorted(self.labels)
            msg = f"{', '.join(self.metrics)} has no label {wrong}; it has {present}"
            raise ValueError(msg)
        return replace(self, labels=kept)

    def having(self, *labels: str) -> ExpressionType:
        """Return the shape with more *labels*."""
        if self.labels is None:
            return self
        return replace(self, labels=self.labels.union(labels))

    def rated(self) -> ExpressionType:
        """Return the shape of the rise per second."""
        return self.measured(None if self.unit is None else _RATES.get(self.unit))

    def measured(self, unit: str | None) -> ExpressionType:
        """Return the shape with another *unit*."""
        return replace(self, unit=unit)

    def beside(self, other: ExpressionType, operator: str) -> ExpressionType:
        """Return the shape of two vectors, or a vector and a scalar, combined."""
        return ExpressionType(
            metrics=self.metrics | other.metrics,
            labels=_labels(self, other, operator),
            unit=_unit(self, other, operator),
            scalar=self.scalar and other.scalar,
            records=tuple(dict.fromkeys((*self.records, *other.records))),
        )


SCALAR = ExpressionType(labels=frozenset(), scalar=True)


def shape_of(metric: Metric) -> ExpressionType:
    """Return the shape of the series of *metric*."""
    labels = frozenset((*metric.labels, *SCRAPED_LABELS))
    return ExpressionType(frozenset([metric.name]), labels, metric.unit)


def _labels(
    left: ExpressionType, right: ExpressionType, operator: str
) -> frozenset[str] | None:
    if operator in ("and", "unless") or right.scalar:
        return left.labels
    if left.scalar:
        return right.labels
    if left.labels is None or right.labels is None:
        return None
    return left.labels | right.labels


def _unit(left: ExpressionType, right: ExpressionType, operator: str) -> str | None:
    if operator.endswith("bool"):
        return ""
    if operator in ("and", "unless", ">", ">=", "<", "<=", "==", "!=") or right.scalar:
        return left.unit
    if left.unit == right.unit:
        return {"/": "ratio", "*": None}.get(operator, left.unit)
    if operator == "or":
        return right.unit if left.unit is None else left.unit
    return right.unit if left.scalar and operator != "/" else None


PLACE = "place"
"""Stands for the labels of a site that identify a service, without its job."""

_JOB_TEXT = "{{ $labels.job }}"
_INSTANCE_TEXT = "{{ $labels.instance }}"


@dataclass(frozen=True, slots=True)
class Identity:
    """A site's labels besides ours: of a service, with ``job``, and of a process."""

    service: tuple[str, ...] = ()
    process: tuple[str, ...] = ()

    def labels(self, ours: Iterable[str]) -> tuple[str, ...]:
        """Return *ours* and the labels that they imply, each once."""
        found: dict[str, None] = {}
        implied = {"job": self.service, "instance": self.process, PLACE: self.service}
        for label in filter(None, ours):
            found.update(dict.fromkeys((*implied.get(label, ()), label)))
        found.pop(PLACE, None)
        return tuple(found)

    def text(self, template: str) -> str:
        """Return a template for people that names services and processes in full."""
        service = "".join(_if_there(label, "{{ . }}/") for label in self.service)
        process = "".join(_if_there(label, " ({{ . }})") for label in self.process)
        return template.replace(_JOB_TEXT, f"{service}{_JOB_TEXT}").replace(
            _INSTANCE_TEXT, f"{_INSTANCE_TEXT}{process}"
        )


def _if_there(label: str, text: str) -> str:
    return f"{{{{ with $labels.{label} }}}}{text}{{{{ end }}}}"


RATE_INTERVAL = "$__rate_interval"
"""Grafana's window for a rate: at least four scrapes."""

RANGE = "$__range"
"""The time range that the person chose."""

INTERVAL = "$__interval"
"""The time between two points of a graph."""

_WINDOW = re.compile(r"\d+(ms|[smhdwy])|\$__(rate_interval|range|interval)")

# Around each list of labels that is kept or compared, so that a site may add its own,
# and around the name of each series that rules record for an expression.
_MARK, _NAMED = "\x1f", "\x1e"

_SELECTOR = re.compile(rf"{_NAMED}?[a-zA-Z_:][\w:]*{_NAMED}?(\{{.*\}})?")

_ATOMIC, _MULTIPLIED, _ADDED, _COMPARED, _SET, _EITHER = 3, 2.5, 2, 1, 0, -1


@dataclass(frozen=True, slots=True)
class Expr:
    """An instant vector (or scalar) as text, how tightly it binds, and its shape."""

    marked: str
    binding: float = _ATOMIC
    shape: ExpressionType = field(default=ExpressionType(), compare=False, repr=False)

    def __str__(self) -> str:
        return self.marked.replace(_MARK, "").replace(_NAMED, "")

    def at(self, identity: Identity) -> Expr:
        """Return it for a site, which keeps more labels wherever ours are kept."""
        parts = self.marked.split(_MARK)
        parts[1::2] = [
            _listed(identity.labels(part.split(", "))) for part in parts[1::2]
        ]
        labels = self.shape.labels and frozenset(identity.labels(self.shape.labels))
        shape = replace(self.shape, labels=labels)
        return replace(self, marked="".join(parts), shape=shape)

    def _aggregate(self, operator: str, *by: str) -> Expr:
        kept = f" by ({_listed(by)}) " if by else ""
        return Expr(f"{operator}{kept}({self.marked})", shape=self.shape.keeping(by))

    def _binary(self, operator: str, other: Expr | float, binding: float) -> Expr:
        right = other if isinstance(other, Expr) else number(other)
        left_text = self._operand(binding, strict=False)
        right_text = right._operand(binding, strict=True)  # noqa: SLF001 - one of us
        # Without the matching: "and on (job)" combines as "and" does.
        kind = operator.partition(" on ")[0]
        shape = self.shape.beside(right.shape, kind)
        return Expr(f"{left_text} {operator} {right_text}", binding, shape)

    def _operand(self, binding: float, *, strict: bool) -> str:
        if self.binding == binding == _EITHER:
            return self.marked
        loose = self.binding <= binding if strict else self.binding < binding
        # Mixed set operators and chained comparisons read better in brackets.
        mixed = max(self.binding, binding) <= _SET
        if loose or mixed or self.binding == binding == _COMPARED:
            return f"({self.marked})"
        return self.marked

    # Each keeps the labels *by*.
    sum = partialmethod(_aggregate, "sum")
    max = partialmethod(_aggregate, "max")
    min = partialmethod(_aggregate, "min")
    avg = partialmethod(_aggregate, "avg")

    __truediv__ = partialmethod(_binary, "/", binding=_MULTIPLIED)
    __mul__ = partialmethod(_binary, "*", binding=_MULTIPLIED)
    __add__ = partialmethod(_binary, "+", binding=_ADDED)
    __sub__ = partialmethod(_binary, "-", binding=_ADDED)
    # Comparisons keep the series for which they hold, or say 1 or 0 of all.
    __gt__ = partialmethod(_binary, ">", binding=_COMPARED)
    __ge__ = partialmethod(_binary, ">=", binding=_COMPARED)
    __lt__ = partialmethod(_binary, "<", binding=_COMPARED)
    __le__ = partialmethod(_binary, "<=", binding=_COMPARED)
    equals = partialmethod(_binary, "==", binding=_COMPARED)
    differing = partialmethod(_binary, "!=", binding=_COMPARED)
    above = partialmethod(_binary, "> bool", binding=_COMPARED)
    below = partialmethod(_binary, "< bool", binding=_COMPARED)

    def count(self, *by: str) -> Expr:
        """Count the series, keeping the labels *by*."""
        return self._aggregate("count", *by).of_unit("")

    def median(self, *by: str) -> Expr:
        """Return the median, keeping the labels *by*."""
        text = f"quantile by ({_listed(by)}) (0.5, {self.marked})"
        return Expr(text, shape=self.shape.keeping(by))

    def count_values(self, label: str, *by: str) -> Expr:
        """Count the series of each value, which becomes *label*, by the labels *by*."""
        text = f'count_values by ({_listed(by)}) ("{label}", {self.marked})'
        return Expr(text, shape=self.count(*by).shape.having(label))

    def of_unit(self, unit: str) -> Expr:
        """Return the same with another *unit*, if the real one cannot be derived."""
        return Expr(self.marked, self.binding, self.shape.measured(unit))

    def topk(self, number: int) -> Expr:
        """Keep the *number* largest."""
        return Expr(f"topk({number}, {self.marked})", shape=self.shape)

    def bottomk(self, number: int, *by: str) -> Expr:
        """Keep the *number* smallest, of each combination of the labels *by*."""
        kept = f" by ({_listed(by)}) " if by else ""
        return Expr(f"bottomk{kept}({number}, {self.marked})", shape=self.shape)

    def worst(self, number: int) -> Expr:
        """Keep the *number* series that are largest at some time in the range."""
        return self.and_(self.over_range("max").topk(number))

    def least(self, number: int) -> Expr:
        """Keep the *number* series that are smallest at some time in the range."""
        return self.and_(self.over_range("min").bottomk(number))

    def quantile(self, q: float, *by: str) -> Expr:
        """Estimate the *q* quantile (0 to 1) of these buckets, by the labels *by*."""
        if not 0 <= q <= 1:
            msg = f"quantile {q} is not within 0 to 1"
            raise ValueError(msg)
        buckets = self.sum("le", *by)
        text = f"histogram_quantile({q:g}, {buckets.marked})"
        return Expr(text, shape=self.shape.keeping(by))

    def reaching(self, other: Expr, *on: str) -> Expr:
        """Keep the series that reach *other*'s one series with the same labels *on*."""
        return self._binary(f">={_on(on)} group_left ()", other, _COMPARED)

    def relative_to(self, other: Expr, *on: str) -> Expr:
        """Divide each series by *other*'s one series with the same labels *on*."""
        quotient = self._binary(f"/{_on(on)} group_left ()", other, _MULTIPLIED)
        shape = replace(quotient.shape, labels=self.shape.labels, unit="ratio")
        return replace(quotient, shape=shape)

    def less(self, other: Expr, *on: str) -> Expr:
        """Subtract *other*'s one series with the same labels *on* from each series."""
        return self._binary(f"-{_on(on)} group_left ()", other, _ADDED)

    def over(
        self,
        function: Literal["avg", "count", "max", "sum"],
        window: str,
        resolution: str,
    ) -> Expr:
        """Aggregate over *window* (subquery), evaluated every *resolution*."""
        subquery = f"({self.marked})[{checked(window)}:{checked(resolution)}]"
        return Expr(f"{function}_over_time({subquery})", shape=self.shape)

    def and_(self, other: Expr, *on: str) -> Expr:
        """Keep the series that *other* has too, comparing the labels *on*, or all."""
        return self._binary(f"and{_on(on)}", other, _SET)

    def or_(self, other: Expr) -> Expr:
        """Add the series of *other* that are missing here."""
        return self._binary("or", other, _EITHER)

    def unless(self, other: Expr, *on: str) -> Expr:
        """Drop the series that *other* has too, comparing the labels *on*, or all."""
        return self._binary(f"unless{_on(on)}", other, _SET)

    def provided(self, condition: Expr) -> Expr:
        """Keep everything if *condition*, which has no labels, has a value."""
        return self._binary("and on ()", condition, _SET)

    def joined(self, info: Expr, on: tuple[str, ...], *, take: tuple[str, ...]) -> Expr:
        """Take over the labels *take* from the info metric *info*, matched *on*."""
        matching = f"*{_on(on)} group_left ({', '.join(take)})"
        product = self._binary(matching, info, _MULTIPLIED)
        shape = replace(product.shape, labels=self.shape.having(*take).labels)
        return replace(product, shape=shape.measured(self.shape.unit))

    def relabelled(self, target: str, source: str) -> Expr:
        """Copy the label *source*, unless it is empty, to the label *target*."""
        text = f'label_replace({self.marked}, "{target}", "$1", "{source}", "(.+)")'
        return Expr(text, shape=self.shape.having(target))

    def named(self, target: str, *sources: str) -> Expr:
        """Join the values of the labels *sources*, without a sign, as *target*."""
        listed = '", "'.join(sources)
        text = f'label_join({self.marked}, "{target}", "", "{listed}")'
        return Expr(text, shape=self.shape.having(target))

    def labelled(self, label: str, value: str) -> Expr:
        """Set *label* to *value* on all series."""
        text = f'label_replace({self.marked}, "{label}", "{value}", "", "")'
        return Expr(text, shape=self.shape.having(label))

    def offset(self, back: str) -> Expr:
        """Return what a selector had *back* ago; of an expression, `ValueError`."""
        return replace(self, marked=f"{self._selector('an offset')}{offset(back)}")

    def latest(self, window: str) -> Expr:
        """Return the latest values of a selector within *window*, or a `ValueError`."""
        text = f"last_over_time({self._selector('a window')}[{checked(window)}])"
        return replace(self, marked=text)

    def record(
        self, level: str, of: Metric | str, operations: str, sentence: str
    ) -> Expr:
        """
        Return the series ``level:metric:operations`` that rules record of it. *of* is
        the metric; in the rules, the *sentence* says what the series is.
        """
        metric = of if isinstance(of, str) else of.name.removesuffix("_total")
        name = f"{level}:{metric}:{operations}"
        shape = replace(
            self.shape,
            metrics=frozenset([name]),
            records=(RecordedSeries(name, self, sentence),),
        )
        return Expr(_named(name), shape=shape)

    def where(self, *matchers: object) -> Expr:
        """Return the series of a selector without matchers that *matchers* select."""
        series = f"{self._selector('matchers')}{{{','.join(map(str, matchers))}}}"
        return replace(self, marked=series)

    def renamed(self, names: Mapping[str, str]) -> Expr:
        """Return it with other *names* of what rules record."""
        parts = self.marked.split(_NAMED)
        parts[1::2] = [_named(names.get(part, part)) for part in parts[1::2]]
        renamed = tuple(
            RecordedSeries(
                names.get(of.name, of.name), of.expr.renamed(names), of.sentence
            )
            for of in self.shape.records
        )
        shape = replace(self.shape, records=renamed)
        return replace(self, marked="".join(parts), shape=shape)

    def over_range(self, function: Literal["count", "last", "max", "min"]) -> Expr:
        """
        Aggregate over Grafana's range. The result is the same at each moment of a
        graph, so Prometheus evaluates it once; use it to choose among many series.
        """
        if _SELECTOR.fullmatch(self.marked):
            text = f"{function}_over_time({self.marked}[{RANGE}] @ end())"
            return replace(self, marked=text)
        subquery = f"({self.marked})[{RANGE}:{INTERVAL}] @ end()"
        return Expr(f"{function}_over_time({subquery})", shape=self.shape)

    def _selector(self, has: str) -> str:
        if not _SELECTOR.fullmatch(self.marked):
            msg = f"{self.marked} is not a selector, and only selectors have {has}"
            raise ValueError(msg)
        return self.marked


@dataclass(frozen=True, slots=True)
class RecordedSeries:
    """What rules record as *name*: an expression, and the *sentence* that says it."""

    name: str
    expr: Expr
    sentence: str


def number(value: float) -> Expr:
    """Return a scalar; whole numbers without a decimal point."""
    return Expr(f"{value:.12g}", shape=SCALAR)


def time() -> Expr:
    """Return the evaluation time as a Unix timestamp."""
    return Expr("time()", shape=SCALAR.measured("seconds"))


def call(function: str, *arguments: Expr | str | float) -> Expr:
    """Return ``function(arguments…)``, for functions such as ``vector``."""
    shapes = [argument.shape for argument in arguments if isinstance(argument, Expr)]
    vectors = [candidate for candidate in shapes if not candidate.scalar]
    shape = next(iter(vectors or shapes), ExpressionType())
    texts = (
        argument.marked if isinstance(argument, Expr) else str(argument)
        for argument in arguments
    )
    return Expr(f"{function}({', '.join(texts)})", shape=shape)


def ratio(part: Expr, whole: Expr) -> Expr:
    """Return *part* / *whole*, nothing if *whole* is 0."""
    return part / (whole > 0)


def _on(labels: tuple[str, ...]) -> str:
    return f" on ({_listed(labels)})" if labels else ""


def _listed(labels: Iterable[str]) -> str:
    return f"{_MARK}{', '.join(labels)}{_MARK}"


def _named(name: str) -> str:
    return f"{_NAMED}{name}{_NAMED}"


def offset(back: str) -> str:
    """Return the modifier for values *back* ago, nothing for ``""``."""
    return f" offset {checked(back)}" if back else ""


def checked(window: str) -> str:
    """Return *window*, or a `ValueError` if it is no duration or Grafana's variable."""
    if not _WINDOW.fullmatch(window):
        msg = f"{window!r} is not a window such as 5m, 1h or {RATE_INTERVAL}"
        raise ValueError(msg)
    return window
