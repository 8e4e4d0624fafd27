"""What is selected at the top of a dashboard."""

from __future__ import annotations

from dataclasses import dataclass

from jaxmon.catalog import Metric
from jaxmon.promql import Expr, Matcher, counter, gauge


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
