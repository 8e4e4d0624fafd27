"""
Dashboard model: rows of panels with queries.

Small enough to be read and compared, and free of any Grafana: a renderer turns it into
JSON. Tests reject invalid panels: a legend label that the query drops, two units on one
axis, a row that does not fill the grid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import islice
from typing import Literal, ParamSpec, TypedDict, Unpack

from jaxmon.catalog import Metric
from jaxmon.promql import Expr, Matcher, counter, gauge
from jaxmon.promql.expressions import PER_SECOND, SCRAPED_LABELS


@dataclass(frozen=True, slots=True)
class Variable:
    """A dashboard variable: the values of a label, which is also its name."""

    label: str
    title: str
    metric: Metric
    text: str
    matchers: tuple[Matcher, ...] = ()
    all_value: str = ""

    def __post_init__(self) -> None:
        self._series.max(self.label)

    @property
    def name(self) -> str:
        """The variable's name in queries."""
        return self.label

    @property
    def query(self) -> str:
        """The query that finds the values."""
        return f"label_values({self._series}, {self.label})"

    @property
    def _series(self) -> Expr:
        if self.metric.kind == "counter":
            return counter(self.metric, *self.matchers).total()
        return gauge(self.metric, *self.matchers)


@dataclass(frozen=True, slots=True, kw_only=True)
class DependentVariable:
    """
    A variable that follows from the others: the values of a label in the result of
    *expr* at the end of the selected time range, which match the pattern *values*. If
    *hidden*, all values found are always selected.
    """

    name: str
    title: str
    label: str
    values: str
    expr: Expr
    text: str
    all_value: str = ""
    hidden: bool = False

    def __post_init__(self) -> None:
        self.expr.max(self.label)

    @property
    def query(self) -> str:
        """The query whose result, as text, holds the values."""
        return f"query_result({self.expr})"

    @property
    def pattern(self) -> str:
        """The pattern, for Grafana, whose group is a value."""
        return f'/{self.label}="({self.values})"/'


UNITS = {
    "": "short",
    PER_SECOND: "ops",
    "per minute": "opm",
    "bytes": "bytes",
    "bytes per second": "Bps",
    "FLOPs per second": "flops",
    "celsius": "celsius",
    "dollars": "currencyUSD",
    "hertz": "hertz",
    "joules": "joule",
    "ratio": "percentunit",
    "seconds": "s",
    "times": "suffix: ×",  # noqa: RUF001 - the sign that a reader expects
    "watts": "watt",
}
"""Grafana's name of each unit."""


_P = ParamSpec("_P")

Kind = Literal["stat", "timeseries", "table", "heatmap", "state-timeline"]

Color = Literal["blue", "green", "orange", "purple", "red", "yellow"]
Stacking = Literal["none", "normal", "percent"]

WIDTH = 24
"""Columns of Grafana's grid."""

RECORDED, EXPORTED, BUCKETS = 180, 120, 40
"""Points of a graph: recorded, exported (an hour has every scrape), of a heatmap."""

_HEIGHT, _HEIGHTS = 8, {"stat": 4}
_INSTANT: tuple[Kind, ...] = ("stat", "table")
_PROMETHEUS_OWN = ("up", "ALERTS")
# In legends: of a device, its host says enough.
_FIRST = (*SCRAPED_LABELS, "uuid", "loop", "route", "function", "run", "signal")
_OF_DEVICES, _BESIDE_DEVICES = ("uuid", "runtime"), ("job", "worker")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Colours by value: below the first of the increasing *steps*, and from each on."""

    base: Color
    steps: tuple[tuple[float, Color], ...]


# Of a state that is 1 as it should be.
_ALL_IS_WELL = Thresholds("red", ((1, "green"),))


@dataclass(frozen=True, slots=True)
class Mapping:
    """How one value is displayed: 1 as a green "up"."""

    value: str
    text: str
    color: Color


@dataclass(frozen=True, slots=True)
class Link:
    """An address to open, in which Grafana fills in variables and fields."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Target:
    """One query; *legend* is a column's title, has ``{{label}}``, or follows labels."""

    expr: Expr
    legend: str = ""
    thresholds: Thresholds | None = None


class PanelOptions(TypedDict, total=False):
    """
    What a panel may have.

    Args:
        width: columns of 24; 0 is an equal part of what the others in its line leave.
        height: units of 30 pixels, of all panels of its line; 0 leaves it to them.
        minimum: start of the axis.
        maximum: end of the axis, if there is a natural one other than 1 of a ratio.
        unbounded: whether a ratio may exceed 1, such as of several cores.
        thresholds: drawn as dashed lines over time, as colours elsewhere; of states, 1
            is good by default.
        mappings: texts for values; in a table they colour the first column.
        stacked: whether the series add up, to their sum or to 100 %.
        alerts: names of alerts about this; their runbooks are linked.
        labels: columns of a table, all labels of its queries, if the order matters.
        values_after: label of a table whose column the values follow; by default, the
            last one. Columns further right may take scrolling.
        cell_links: links from the cells of a table, by label.
        no_value: text shown if there is no data; by default, what there is none of.
        sort: title of the column that sorts a table, the largest value first.
    """

    width: int
    height: int
    minimum: float
    maximum: float | None
    unbounded: bool
    thresholds: Thresholds | None
    mappings: tuple[Mapping, ...]
    stacked: Stacking
    alerts: tuple[str, ...]
    labels: tuple[str, ...]
    values_after: str
    cell_links: tuple[tuple[str, Link], ...]
    no_value: str
    sort: str


@dataclass(frozen=True, slots=True)
class Panel:
    """
    One panel, with `PanelOptions`. Its id is unique in the dashboard, as its title, and
    stable, because links contain it. Targets are of one unit, except in a table.
    """

    kind: Kind
    id: int
    title: str
    text: str
    targets: tuple[Target, ...]
    width: int = 0
    height: int = 0
    minimum: float = 0
    maximum: float | None = None
    unbounded: bool = False
    thresholds: Thresholds | None = None
    mappings: tuple[Mapping, ...] = ()
    stacked: Stacking = "none"
    alerts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    values_after: str = ""
    cell_links: tuple[tuple[str, Link], ...] = ()
    no_value: str = ""
    sort: str = ""

    @property
    def top(self) -> float | None:
        """The end of the axis, if there is a natural one."""
        is_bounded = self.kind == "timeseries" and not self.unbounded
        return 1 if is_bounded and self.unit == "ratio" else self.maximum

    @property
    def instant(self) -> bool:
        """Whether it shows only the latest values: nothing of a series that ended."""
        return self.kind in _INSTANT

    @property
    def ranked(self) -> bool:
        """Whether its queries choose the worst of many series."""
        return any(
            re.search(r"(top|bottom)k\(", str(query.expr)) for query in self.targets
        )

    @property
    def lowest_first(self) -> bool:
        """Whether those with the lowest values are the worst: few fit into a legend."""
        return all("bottomk(" in str(target.expr) for target in self.targets)

    @property
    def points(self) -> int:
        """At how many moments its queries are evaluated, at most: what it costs."""
        if self.kind == "heatmap":
            return BUCKETS
        recorded = all(":" in name or name in _PROMETHEUS_OWN for name in self.metrics)
        return RECORDED if recorded else EXPORTED

    @property
    def unit(self) -> str:
        """The unit of its queries; a table has one per column."""
        return self.targets[0].expr.shape.unit or ""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names that its queries read, sorted."""
        read = {name for target in self.targets for name in target.expr.shape.metrics}
        return tuple(sorted(read))

    @property
    def description(self) -> str:
        """The text, and the metrics for those who want to query further."""
        names = ", ".join(f"`{name}`" for name in self.metrics)
        recorded = any(":" in name for name in self.metrics)
        needs = " Requires jaxmon's recording rules." if recorded else ""
        return f"{self.text}{needs}\n\nMetrics: {names}"


@dataclass(frozen=True, slots=True)
class PanelLine:
    """Panels side by side, equally high, over the whole width of the grid."""

    panels: tuple[Panel, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """The columns that each panel takes."""
        left = WIDTH - sum(panel.width for panel in self.panels)
        sharing = sum(not panel.width for panel in self.panels)
        return tuple(panel.width or left // sharing for panel in self.panels)

    @property
    def height(self) -> int:
        """Units of 30 pixels."""
        default = min(_HEIGHTS.get(panel.kind, _HEIGHT) for panel in self.panels)
        return max(panel.height for panel in self.panels) or default


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading; collapsed, its queries run when it is opened."""

    id: int
    title: str
    lines: tuple[PanelLine, ...]
    collapsed: bool = False

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Its panels in reading order."""
        return tuple(panel for line in self.lines for panel in line.panels)

    def panel(self, title: str) -> Panel:
        """Return the panel *title* for a line of another board, or `ValueError`."""
        [found] = [panel for panel in self.panels if panel.title == title]
        return replace(found, width=0, height=0)

    def opened(self, title: str = "") -> Row:
        """Return the row as it stands on a board about its subject, open."""
        return replace(self, collapsed=False, title=title or self.title)


@dataclass(frozen=True, slots=True)
class Annotation:
    """Events drawn across every panel when *expr* yields something."""

    name: str
    title: str
    text: str
    color: Color
    expr: Expr


@dataclass(frozen=True, slots=True)
class Notes:
    """Annotations that Grafana itself keeps, which have all these *tags*."""

    name: str
    tags: tuple[str, ...]
    color: Color


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A whole dashboard; its uid is part of its address, and stays."""

    uid: str
    title: str
    description: str
    since: str
    variables: tuple[Variable | DependentVariable, ...]
    annotations: tuple[Annotation | Notes, ...]
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The panels of all rows."""
        return tuple(panel for row in self.rows for panel in row.panels)


def row(
    number: int,
    title: str,
    *,
    lines: tuple[int, ...],
    collapsed: bool = False,
    no_value: str = "",
) -> Callable[[Callable[_P, Iterator[Panel]]], Callable[_P, Row]]:
    """
    Return a decorator that puts what a function yields under a heading, in lines.

    Panels without a *no_value* have that of the row.
    """

    def decorate(panels: Callable[_P, Iterator[Panel]]) -> Callable[_P, Row]:
        @wraps(panels)
        def made(*args: _P.args, **kwargs: _P.kwargs) -> Row:
            found = [
                replace(panel, no_value=panel.no_value or no_value)
                for panel in panels(*args, **kwargs)
            ]
            if len(found) != sum(lines):
                msg = f"row {title} has {len(found)} panels, and room for {lines}"
                raise ValueError(msg)
            left = iter(found)
            placed = (PanelLine(tuple(islice(left, count))) for count in lines)
            return Row(number, title, tuple(placed), collapsed)

        return made

    return decorate


@dataclass(frozen=True, slots=True)
class _Heading:
    """A panel without what it shows, with which it is called."""

    kind: Kind
    number: int
    title: str

    def __call__(
        self, *targets: Target | Expr, text: str, **options: Unpack[PanelOptions]
    ) -> Panel:
        """
        Return the panel. An expression has the title as its legend if it is a single
        value, else its labels; in a graph, a legend without labels follows them.
        """
        named = tuple(map(self._named, targets))
        if self.kind == "table":
            options = {"labels": _labels(named[0].expr), **options}
        if self.kind == "state-timeline":
            options = {"thresholds": _ALL_IS_WELL, **options}
        return Panel(self.kind, self.number, self.title, text, named, **options)

    def _named(self, target: Target | Expr) -> Target:
        single = self.kind in _INSTANT
        if isinstance(target, Expr):
            target = Target(target, self.title if single else "")
        if single or "{{" in target.legend:
            return target
        shown = _labels(target.expr)
        if set(shown).intersection(_OF_DEVICES):
            shown = tuple(label for label in shown if label not in _BESIDE_DEVICES)
        parts = (*(f"{{{{{label}}}}}" for label in shown), target.legend)
        return replace(target, legend=" ".join(filter(None, parts)))


def _labels(expr: Expr) -> tuple[str, ...]:
    labels = expr.shape.labels or frozenset()
    first = [label for label in _FIRST if label in labels]
    return (*first, *sorted(labels.difference(first)))


heatmap = partial(_Heading, "heatmap")
"""How the values of a histogram are distributed over time."""

stat = partial(_Heading, "stat")
"""A single value, with the panel's title."""

states = partial(_Heading, "state-timeline")
"""States over time, as *mappings* name them."""

table = partial(_Heading, "table")
"""Current values, with a column for each query after the *labels*."""

timeseries = partial(_Heading, "timeseries")
"""Values over time."""
