"""Validates histograms and summaries: a strict parser rejects all output for one."""

from __future__ import annotations

from math import inf

from jaxmon.errors import PageError
from jaxmon.exposition.families import Family


_TOTALS = ("_sum", "_count")
_HIGHEST = 1e300


def check_distribution(family: Family) -> None:
    """Check the distributions of *family*, or raise a `PageError`."""
    label = "le" if family.metric.kind == "histogram" else "quantile"
    seen: set[str] = set()
    # The same few for all of them.
    bounds: dict[str, float] = {}
    current: _Distribution | None = None
    length = len(family.metric.name)
    try:
        for series, value in family.samples:
            part, labels, text = _parts(series[length:], label)
            bound = bounds.get(text)
            if bound is None:
                bound = bounds[text] = _bound(text, label)
            if current is None or labels != current.labels:
                if current is not None:
                    current.check()
                current = _begun(labels, label, seen)
            current.add(part, bound, value)
        if current is not None:
            current.check()
    except ValueError as error:
        msg = f"{family.metric.kind} {family.metric.name} {error}"
        raise PageError(msg) from None


class _Distribution:
    """What belongs to one set of labels. Methods raise `ValueError` with the reason."""

    def __init__(self, labels: str, label: str) -> None:
        self.labels = labels
        self._label = label
        self._bound = -inf
        self._below = 0.0
        self._totals: dict[str, float] = {}

    def add(self, part: str, bound: float, value: float) -> None:
        if not 0 <= value < inf and (part or value < 0):
            msg = f"has {value} in {part or self._label}"
            raise ValueError(msg)
        if part in _TOTALS:
            self._totals[part] = value
            return
        if bound <= self._bound:
            msg = f"has {self._label} {bound:g} out of order"
            raise ValueError(msg)
        self._bound = bound
        if part:
            if value < self._below or value != int(value):
                msg = (
                    f"counts {value} in bucket {bound} after {self._below}; give whole "
                    "numbers that never decrease"
                )
                raise ValueError(msg)
            self._below = value

    def check(self) -> None:
        if len(self._totals) != len(_TOTALS):
            msg = "must have exactly one _sum and one _count"
            raise ValueError(msg)
        count = self._totals["_count"]
        if self._label == "le" and (self._bound != inf or count != self._below):
            msg = "has no +Inf bucket equal to its count"
            raise ValueError(msg)
        if count != int(count):
            msg = f"counts {count}"
            raise ValueError(msg)


def _begun(labels: str, label: str, seen: set[str]) -> _Distribution:
    if labels in seen:
        msg = "is not contiguous"
        raise ValueError(msg)
    seen.add(labels)
    return _Distribution(labels, label)


def _parts(rest: str, label: str) -> tuple[str, str, str]:
    """Return which part of a distribution a series is, its labels, and its bound."""
    part, _, labels = rest.partition("{")
    if part in _TOTALS:
        return part, labels[:-1], "0"
    # In a label value, the quotation mark would be escaped.
    others, found, bound = labels[:-2].rpartition(f'{label}="')
    if not found or others[-1:] not in ("", ",") or '"' in bound:
        msg = f"has no label {label} at the end"
        raise ValueError(msg)
    return part, others[:-1], bound


def _bound(text: str, label: str) -> float:
    """Return the number *text*: spelled in one way, or two bounds may be the same."""
    if text == "+Inf" and label == "le":
        return inf
    number = float(text)
    highest = 1.0 if label == "quantile" else _HIGHEST
    if not 0 <= number <= highest or text not in (repr(number), f"{number:g}"):
        msg = f"has the bound {text[:40]}"
        raise ValueError(msg)
    return number
