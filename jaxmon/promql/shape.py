"""
Static properties of a PromQL expression.

`jaxmon.promql` works it out while a query is built, so that a dashboard can
take its unit, name its metrics and reject a legend with a missing label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

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
    product of two units; whether it is a scalar.
    """

    metrics: frozenset[str] = frozenset()
    labels: frozenset[str] | None = None
    unit: str | None = None
    scalar: bool = False

    def keeping(self, labels: Iterable[str]) -> ExpressionType:
        """Return the shape after an aggregation by *labels*, or `ValueError`."""
        kept = frozenset(labels)
        if self.labels is not None and not kept <= self.labels:
            wrong, present = sorted(kept - self.labels), sorted(self.labels)
            msg = f"{', '.join(self.metrics)} has no label {wrong}; it has {present}"
            raise ValueError(msg)
        return replace(self, labels=kept)

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
