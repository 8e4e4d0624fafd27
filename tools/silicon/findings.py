"""What a check compares: a figure, what it should be, and whether it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias


Measured: TypeAlias = Mapping[str, Any]
"""What a check measured, as JSON can hold it."""


class ImpossibleError(Exception):
    """This machine lacks what the check needs; the message says what."""


class Finding(NamedTuple):
    """
    One comparison.

    Attributes:
        name: what is compared.
        ours: jaxmon's value.
        expected: the value measured in another way, or its limits.
        right: whether they agree; `None` for a figure without a limit.
    """

    name: str
    ours: str
    expected: str
    right: bool | None


def near(name: str, ours: float | None, truth: float | None, by: float) -> Finding:
    """Compare *ours* with *truth*, give or take the fraction *by* of it."""
    if ours is None or truth is None:
        return Finding(name, shown(ours), shown(truth), right=False)
    right = math.isfinite(truth) and abs(ours - truth) <= by * abs(truth)
    return Finding(name, shown(ours), f"{shown(truth)} ± {by:.0%}", right)


def between(name: str, ours: float | None, least: float, most: float) -> Finding:
    """Expect *ours* from *least* to *most*."""
    right = ours is not None and least <= ours <= most
    limits = f"at least {shown(least)}"
    if math.isfinite(most):
        limits = f"{shown(least)} to {shown(most)}"
    return Finding(name, shown(ours), limits, right)


def same(name: str, ours: object, truth: object) -> Finding:
    """Expect *ours* to be *truth*."""
    return Finding(name, shown(ours), shown(truth), ours == truth)


def figure(name: str, ours: object) -> Finding:
    """Report *ours*, which has no limit."""
    return Finding(name, shown(ours), "", None)


def shown(value: object) -> str:
    """Return *value* as a cell of a table."""
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
