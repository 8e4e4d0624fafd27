"""Compares the summaries of two runs: what takes longer, or needs more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from jaxmon.baseline.changes import (
    Change,
    Judged,
    Subject,
    What,
    failures,
    finished,
    of_function,
    peak,
    times,
)
from jaxmon.baseline.compare import differences
from jaxmon.baseline.figures import Tolerance
from jaxmon.baseline.machine import TIMES, Machine, functions
from jaxmon.errors import BaselineError
from jaxmon.facts.functions import Spread
from jaxmon.formats.layout import size
from jaxmon.report.runs.summary import Run


_SAME = ("platform", "device")
_DEVICE_MEMORY = Tolerance(0.1, 16 << 20)
_HOST_MEMORY = Tolerance(0.25, 64 << 20)
_WORTH_BYTES = 1 << 20
_MOST_LINES = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """
    Args:
        before: one run.
        after: the other.
        changes: all that was compared; what cost most first.
        new: functions that only the run after compiled.
        vanished: those that only the run before did.
        differences: versions and flags that differ, as ``name: old → new``.
        packages: the same of installed packages.
        untimed: functions that both runs called, without times in one of them.
    """

    before: Run
    after: Run
    changes: tuple[Change, ...]
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    differences: tuple[str, ...]
    packages: tuple[str, ...]
    untimed: tuple[str, ...] = ()

    def of(self, verdict: Judged) -> list[Change]:
        """Return the changes with that *verdict*."""
        return [one for one in self.changes if one.verdict == verdict]


def compare(before: Run, after: Run) -> Comparison:
    """
    Compare two runs.

    Raises:
        BaselineError: they ran on different hardware.
    """
    for name in _SAME:
        old, new = before.versions.get(name), after.versions.get(name)
        if old and new and old != new:
            msg = f"runs on {name} {old!r} and {new!r} cannot be compared"
            raise BaselineError(msg)
    known = bool(before.packages and after.packages)
    earlier, later = functions(before).keys(), functions(after).keys()
    changes = tuple(sorted(_changes(before, after), key=_order))
    timed = {one.name for one in changes if one.measure in TIMES}
    return Comparison(
        before,
        after,
        changes,
        new=tuple(sorted(later - earlier)),
        vanished=tuple(sorted(earlier - later)),
        differences=differences(before.versions, after.versions),
        packages=differences(before.packages, after.packages) if known else (),
        untimed=tuple(sorted((earlier & later) - timed)),
    )


def _changes(before: Run, after: Run) -> Iterator[Change]:
    machine = Machine(before, after)
    earlier = functions(before)
    for name, function in functions(after).items():
        if name in earlier:
            latest = [r for r in after.snapshot.recompiles if r.function == name]
            yield from of_function(earlier[name], function, machine, tuple(latest))
    old, new = before.snapshot.usual, after.snapshot.usual
    steps = {one.name: one.steps for one in after.snapshot.steps}
    yield from _marked("loop", "step_seconds", (old.steps, new.steps), steps, machine)
    served = {one.name: finished(one) for one in after.snapshot.requests}
    latencies = old.requests, new.requests
    yield from _marked("route", "request_seconds", latencies, served, machine)
    routes = {one.name: one for one in before.snapshot.requests}
    for route in after.snapshot.requests:
        if route.name in routes:
            change = failures(routes[route.name], route)
            if change is not None:
                yield change
    yield from _memory(before, after)


def _marked(
    what: What,
    measure: str,
    sides: tuple[Mapping[str, Spread], Mapping[str, Spread]],
    calls: Mapping[str, int],
    machine: Machine,
) -> Iterator[Change]:
    old, new = sides
    for name in old.keys() & new.keys():
        found = old[name], new[name]
        number = calls.get(name, 0)
        of = Subject(what, name, measure)
        yield from times(of, found, calls=number, machine=machine)


def _memory(before: Run, after: Run) -> Iterator[Change]:
    old, new = before.snapshot, after.snapshot
    peaks = {one.device: one.peak for one in old.memory.devices}
    for device in new.memory.devices:
        was, now = peaks.get(device.device), device.peak
        if was and now:
            change = peak("device", device.device, (was, now), _DEVICE_MEMORY)
            if change.verdict == "worse":
                change = replace(change, evidence=tuple(_holders(before, after)))
            yield change
    was, now = old.usual.peak_resident_bytes, new.usual.peak_resident_bytes
    if was and now:
        yield peak("process", "the process", (was, now), _HOST_MEMORY)


def _holders(before: Run, after: Run) -> Iterator[str]:
    """Yield the source lines that hold more device memory than before."""
    old = {one.place: one.bytes for one in before.snapshot.allocations.lines}
    grown = [
        (one.bytes - old.get(one.place, 0.0), one)
        for one in after.snapshot.allocations.lines
    ]
    grown.sort(key=lambda item: -item[0])
    for by, one in grown[:_MOST_LINES]:
        if by >= _WORTH_BYTES:
            yield f"{one.place} holds {size(one.bytes)}, {size(by)} more"


def _order(change: Change) -> tuple[float, str, str, str]:
    """Return what changes are sorted by: those that cost most first."""
    return -change.lost, change.what, change.name, change.measure
