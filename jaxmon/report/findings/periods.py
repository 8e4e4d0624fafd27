"""How findings word the parts of a period of the ledger of time."""

from __future__ import annotations

from jaxmon.facts.process import Snapshot
from jaxmon.facts.walltime import Period
from jaxmon.formats.layout import duration, share


_MOST_LINES = 3
OF_A_LINE = 0.02
"""Share of the time from which on a line is worth a word."""


def settled(snapshot: Snapshot) -> Period | None:
    """Return the period to judge, `None` if there are too few looks."""
    period = snapshot.time.period
    return period if period.settled else None


def part(seconds: float, period: Period) -> str:
    """Return ``12 s, 10 % of 2 min``."""
    of_it = share(seconds, period.seconds)
    return f"{duration(seconds)}, {of_it} of {duration(period.seconds)}"


def of_all(seconds: float, period: Period, snapshot: Snapshot) -> float:
    """Return *seconds* of *period*, as a part of the whole observed time."""
    observed = snapshot.process.observed_seconds
    return seconds / period.seconds * observed if observed else seconds


def mostly(lines: list[tuple[str, float]], took: float) -> str:
    """Return which of *lines*, most first, has most of what *took* so long."""
    if not lines or not took:
        return "."
    return f": {share(min(lines[0][1], took), took)} of it at {lines[0][0]}."


def further(lines: list[tuple[str, float]]) -> tuple[str, ...]:
    """Return the lines after the first, as evidence."""
    whole = sum(seconds for _, seconds in lines)
    return tuple(
        f"{place}: {duration(seconds)}"
        for place, seconds in lines[1:_MOST_LINES]
        if seconds >= OF_A_LINE * whole
    )
