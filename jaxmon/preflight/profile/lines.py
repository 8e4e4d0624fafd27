"""The lines that a compile goes into, by what its process says of it and its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jaxmon.facts.contents import CompileLines
from jaxmon.host.formats.layout import counted, duration


FOLDING, LOAD, REST, TRACE = "constant folding", "load", "rest", "trace"
_WORTH, _MOST_NAMED = 0.1, 3


class SlowLine(NamedTuple):
    """
    A line of source that most of some *seconds* of a compile is for, and a *text* on
    it; its *kind*: ``unrolled``, ``equations``, ``tracing``, ``folding``.
    """

    where: str
    kind: str
    seconds: float
    text: str


def slow_lines(
    costs: CompileLines, parts: Mapping[str, float], seconds: float
) -> list[SlowLine]:
    """Return lines, once each, by the *parts* of a compile of so many *seconds*."""
    found = [of for of in _lines(costs, parts, seconds) if of.where]
    found = [of for of in found if of.seconds >= _WORTH * seconds]
    by_place = {of.where: of for of in sorted(found, key=lambda of: of.seconds)}
    return sorted(by_place.values(), key=lambda of: -of.seconds)


def _lines(
    costs: CompileLines, parts: Mapping[str, float], seconds: float
) -> Iterator[SlowLine]:
    rest = seconds - sum(parts.get(name, 0.0) for name in (FOLDING, LOAD, REST, TRACE))
    traced, folding = parts.get(TRACE, 0.0), parts.get(FOLDING, 0.0)
    more = "more than " if costs.uncounted else ""
    all_of_it = f"of {more}{counted(costs.equations, 'equation')}"
    named = [f"{name} {n:,}" for name, n in costs.operations.items()][:_MOST_NAMED]
    mostly = f": {', '.join(named)}" if named else ""
    loop = costs.unrolled
    if loop and costs.inside >= costs.most:
        at = f", {costs.most:,} at {costs.where}" if costs.where != loop.where else ""
        inside = f"{costs.inside:,} {all_of_it}{at}{mostly}"
        # Its body is traced each time.
        rest += traced if costs.loop == loop.where else 0.0
        text = f"a Python loop, unrolled at least {loop.times:,} times, {inside}"
        yield SlowLine(loop.where, "unrolled", rest, text)
    else:
        text = f"{costs.most:,} {all_of_it}{mostly}"
        yield SlowLine(costs.where, "equations", rest, text)
    took = min(costs.traced_seconds, traced)
    yield SlowLine(costs.traced, "tracing", took, f"about {duration(took)} of tracing")
    if of := costs.folded:
        text = f"most likely what is folded: {of.operation} of {of.constant}"
        yield SlowLine(of.where, "folding", folding, text)
