"""
The sections of a report on what a program marks: requests, steps, queues.

Each is empty if there is nothing to report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxmon.facts.marked import Finished, Loop, QueueFacts, RouteFacts
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import UNKNOWN, Column, ago, amount, duration, share
from jaxmon.screens.section import Section, more


_MOST = 12
_LONG_SECONDS = 1.0


def requests(snapshot: Snapshot, *, most: int = _MOST) -> Section:
    """
    Return finished requests by route, outcome and start, the most frequent routes
    first, and the requests that are in progress for long.
    """
    routes = sorted(snapshot.requests, key=lambda one: -_finished(one))
    rows = [
        _request(route, one, first=not place)
        for route in routes
        for place, one in enumerate(
            sorted(route.finished, key=lambda one: (-one.count, one.outcome, one.start))
        )
        if one.count
    ]
    layout = [
        Column("ROUTE", right=False),
        Column("OUTCOME", 14, right=False),
        Column("START", 9, right=False),
        Column("COUNT", 10),
        Column("P50", 11),
        Column("P95", 11),
    ]
    waiting = [
        f"{route.name} {route.in_progress:,} (the oldest for "
        f"{duration(route.oldest_seconds)})"
        for route in routes
        if route.in_progress and route.oldest_seconds >= _LONG_SECONDS
    ]
    below = [f"in progress: {', '.join(waiting[:_MOST])}"] if waiting else []
    return _table("REQUESTS", layout, rows, most, below)


def steps(snapshot: Snapshot, *, most: int = _MOST) -> Section:
    """Return the steps of each loop, those with most steps first."""
    loops = sorted(snapshot.steps, key=lambda one: -one.steps)
    layout = [
        Column("LOOP", right=False),
        Column("STEPS", 10),
        Column("A SECOND", 10),
        Column("MEAN", 10),
        Column("P95", 10),
        Column("DATA WAIT", 11),
        Column("LAST STEP", 15),
    ]
    return _table("STEPS", layout, [_loop(one) for one in loops], most)


def queues(snapshot: Snapshot, *, most: int = _MOST) -> Section:
    """Return the depth of each queue and how it has changed, deepest first."""
    found = sorted(snapshot.queues, key=lambda one: -one.depth)
    layout = [
        Column("QUEUE", right=False),
        Column("DEPTH NOW", 11),
        Column("GREATEST", 11),
        Column("CHANGE", 26),
    ]
    return _table("QUEUES", layout, [_queue(one) for one in found], most)


def _table(
    title: str,
    layout: Sequence[Column],
    rows: Sequence[Sequence[str]],
    most: int,
    below: Sequence[str] = (),
) -> Section:
    below = (*more(len(rows) - most), *below)
    return Section(title, columns=layout, rows=rows[:most], below=below)


def _finished(route: RouteFacts) -> int:
    return sum(one.count for one in route.finished)


def _request(route: RouteFacts, one: Finished, *, first: bool) -> list[str]:
    return [
        route.name if first else "",
        one.outcome.replace("_", " "),
        one.start,
        f"{one.count:,}",
        _known(one.p50_seconds, duration),
        _known(one.p95_seconds, duration),
    ]


def _loop(one: Loop) -> list[str]:
    return [
        one.name,
        f"{one.steps:,}",
        amount(1 / one.mean_seconds) if one.mean_seconds else UNKNOWN,
        _known(one.mean_seconds, duration),
        _known(one.p95_seconds, duration),
        _known(one.data_wait_ratio, lambda part: share(part, 1)),
        _known(one.last_step_seconds, ago) if one.running else "ended",
    ]


def _queue(one: QueueFacts) -> list[str]:
    change = UNKNOWN
    if one.growth is not None and one.growth_seconds:
        change = f"{one.growth:+,} in {duration(one.growth_seconds)}"
    return [one.name, f"{one.depth:,}", f"{one.maximum:,}", change]


def _known(value: float | None, text: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else text(value)
