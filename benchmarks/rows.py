"""One figure of a benchmark, its goal beside it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """
    A figure.

    Attributes:
        name: what was measured.
        value: the median.
        unit: of *value*, *best* and the limits.
        best: the most favourable round, where there are rounds.
        at_most: the goal, if it is an upper limit.
        at_least: the goal, if it is a lower limit.
        note: what else there is to say.
    """

    name: str
    value: float
    unit: str
    best: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met, `None` where there is none."""
        if self.at_most is not None:
            return self.value <= self.at_most
        if self.at_least is not None:
            return self.value >= self.at_least
        return None


def paired(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """
    Return the median difference of two sequences measured in turns.

    What slows the machine for a while slows both of a pair.
    """
    return statistics.median(a - b for a, b in zip(ours, theirs, strict=True))


def table(rows: Iterable[Row]) -> str:
    """Return *rows* as text."""
    lines = [f"{'':46}{'median':>10}{'best':>10} {'':8}{'goal':>9}"]
    for row in rows:
        best = "" if row.best is None else _number(row.best)
        goal = ""
        if row.at_most is not None:
            goal = f"<= {_number(row.at_most)}"
        elif row.at_least is not None:
            goal = f">= {_number(row.at_least)}"
        verdict = {True: "  met", False: "  MISSED", None: ""}[row.met]
        lines.append(
            f"{row.name:46}{_number(row.value):>10}{best:>10} {row.unit:8}"
            f"{goal:>9}{verdict}"
        )
        if row.note:
            lines.append(f"    {row.note}")
    return "\n".join(lines)


def _number(value: float) -> str:
    if value == int(value):
        return f"{value:,.0f}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
