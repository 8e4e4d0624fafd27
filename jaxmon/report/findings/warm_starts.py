"""Findings on requests that waited for compiles. The constants are the thresholds."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.marked import Route
from jaxmon.facts.process import Snapshot
from jaxmon.formats.durations import seconds as seconds_in
from jaxmon.formats.layout import counted, duration
from jaxmon.report.findings.finding import Finding
from jaxmon.report.findings.recompiles import recompiles


_MOST_EVIDENCE = 3


def cold_requests(snapshot: Snapshot) -> Iterator[Finding]:
    """
    Detect compiles on requests that a warm-up would have avoided: the next replica has
    the same ones. Not of a function that keeps recompiling: what it will be called with
    is not known.
    """
    known = snapshot.signatures
    if not known.recorded or known.warmed or any(recompiles(snapshot)):
        return
    routes = [(_waited(one), _cold(one), one.name) for one in snapshot.requests]
    waited = sum(seconds for seconds, _, _ in routes)
    observed = snapshot.process.observed_seconds
    limits = snapshot.limits
    if waited < max(seconds_in(limits.slow_start), limits.time_part * observed):
        return
    slow = [one for one in sorted(routes, reverse=True) if one[0]]
    count = sum(number for _, number, _ in slow)
    to = f" to {slow[0][2]}" if len(slow) == 1 else f", most to {slow[0][2]},"
    yield Finding(
        "cold_requests",
        "",
        f"{counted(count, 'request')}{to} waited about {duration(waited)} for "
        "compiles that a warm-up would have avoided.",
        tuple(
            f"{name}: {counted(number, 'request')}, {duration(seconds)}"
            for seconds, number, name in slow[:_MOST_EVIDENCE]
        ),
        f"What they waited for is recorded, {counted(known.recorded, 'signature')}: "
        "write it to a file with `jaxmon signatures export`, and let the next process "
        "compile it before it serves (docs/warm-starts.md).",
        # Several requests may wait for the same compile.
        seconds=min(waited, snapshot.compile_time),
    )


def _cold(route: Route) -> int:
    return sum(one.count for one in route.finished if one.start == "cold")


def _waited(route: Route) -> float:
    """Return how much longer cold requests took than warm ones, 0 if unknown."""
    usual = [
        one.p50_seconds
        for one in route.finished
        if (one.outcome, one.start) == ("success", "warm")
    ]
    if not usual or usual[0] is None:
        return 0.0
    return sum(
        one.count * max((one.mean_seconds or 0.0) - usual[0], 0.0)
        for one in route.finished
        if one.start == "cold"
    )
