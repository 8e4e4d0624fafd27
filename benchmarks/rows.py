"""One figure of a benchmark, its goal beside it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Unpack


if TYPE_CHECKING:
    from jaxmon.agent import Agent
    from jaxmon.options import Options


@dataclass(frozen=True)
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
    _: KW_ONLY
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


def taken(  # noqa: PLR0913 - what a row has
    name: str,
    times: Sequence[float],
    unit: str,
    *,
    scale: float = 1.0,
    at_most: float | None = None,
    note: str = "",
) -> Row:
    """Return the row of what took these *times*, each *scale* of *unit*."""
    value, best = statistics.median(times) * scale, min(times) * scale
    return Row(name, value, unit, best=best, at_most=at_most, note=note)


def added(  # noqa: PLR0913 - what a row has
    name: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    at_most: float | None = None,
    note: str = "",
) -> Row:
    """Return the row of what *ours* take more than *theirs*, measured in turns."""
    value, best = paired(ours, theirs), min(ours) - min(theirs)
    return Row(name, value, unit, best=best, at_most=at_most, note=note)


def seconds(
    work: Callable[[], object],
    rounds: int,
    clock: Callable[[], float] = perf_counter,
) -> list[float]:
    """Return what each round of *work* takes by *clock*."""
    found = []
    for _ in range(rounds):
        began = clock()
        work()
        found.append(clock() - began)
    return found


@contextmanager
def agent(**settings: Unpack[Options]) -> Iterator[Agent]:
    """Run an agent with *settings*, without endpoints, within the block."""
    import jaxmon

    settings = {"port": None, "socket": False, "memory_interval": 0, **settings}
    try:
        yield jaxmon.instrument(**settings)
    finally:
        jaxmon.uninstrument()


def table(rows: Iterable[Row]) -> str:
    """Return *rows* as text."""
    lines = [f"{'':46}{'median':>10}{'best':>10} {'':8}{'goal':>9}"]
    for row in rows:
        best = "" if row.best is None else number(row.best)
        goal = ""
        if row.at_most is not None:
            goal = f"<= {number(row.at_most)}"
        elif row.at_least is not None:
            goal = f">= {number(row.at_least)}"
        verdict = {True: "  met", False: "  MISSED", None: ""}[row.met]
        lines.append(
            f"{row.name:46}{number(row.value):>10}{best:>10} {row.unit:8}"
            f"{goal:>9}{verdict}"
        )
        if row.note:
            lines.append(f"    {row.note}")
    return "\n".join(lines)


def number(value: float) -> str:
    """Return *value* with three digits or more."""
    if value == int(value):
        return f"{value:,.0f}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
