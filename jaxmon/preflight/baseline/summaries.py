"""Compares the summaries of two runs: what takes longer, or needs more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from jaxmon.errors import BaselineError
from jaxmon.facts.functions import Spread
from jaxmon.host.formats.layout import (
    INDENT,
    amount,
    clean,
    counted,
    duration,
    share,
    shortened,
    size,
    wrapped,
)
from jaxmon.limits import Limits
from jaxmon.preflight.baseline.changes import (
    FEW,
    TIMES,
    Judged,
    Machine,
    RunChange,
    Subject,
    What,
    failures,
    finished,
    functions,
    of_function,
    peak,
    times,
)
from jaxmon.preflight.baseline.compare import (
    Verdict,
    differences,
    few,
    named,
    why_untimed,
)
from jaxmon.preflight.baseline.record import Tolerance
from jaxmon.screens.programs import label
from jaxmon.screens.runs import Run
from jaxmon.screens.section import moment


SCHEMA = 1
"""Version of what `as_json` returns."""

_TITLES: tuple[tuple[Verdict, str], ...] = (
    ("better", "BETTER"),
    ("unclear", "UNCLEAR"),
    ("worse", "WORSE"),
)
_DOES = {
    "execution_seconds": "executing it takes",
    "dispatch_seconds": "dispatching it takes",
    "step_seconds": "a step takes",
    "request_seconds": "a warm request takes",
    "compile_seconds": "compiling a program of it takes",
}
_COUNTS = {"failed_requests": "requests", "compile_seconds": "programs"}
_TIMED = (
    "Of calls that take JAX's fast path, one a second is timed; `jaxmon baseline` "
    "times each."
)
_MOST = 20
_MOST_UNJUDGED = 6


_SAME = ("platform", "device")
_DEVICE_MEMORY = Tolerance(0.1, 16 << 20)
_HOST_MEMORY = Tolerance(0.25, 64 << 20)
_WORTH_BYTES = 1 << 20
_MOST_LINES = 3


@dataclass(frozen=True, slots=True)
class RunComparison:
    """
    Two runs: changes, the costliest first; *new* and *vanished* functions; versions and
    flags that differ, as ``name: old → new``; and functions *untimed* in one of them.
    """

    before: Run
    after: Run
    changes: tuple[RunChange, ...]
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    differences: tuple[str, ...]
    packages: tuple[str, ...]
    untimed: tuple[str, ...] = ()

    def of(self, verdict: Judged) -> list[RunChange]:
        """Return the changes with that *verdict*."""
        return [change for change in self.changes if change.verdict == verdict]


def compare(before: Run, after: Run, limits: Limits) -> RunComparison:
    """Compare two runs."""
    for name in _SAME:
        old, new = before.versions.get(name), after.versions.get(name)
        if old and new and old != new:
            msg = f"runs on {name} {old!r} and {new!r} cannot be compared"
            raise BaselineError(msg)
    have_packages = bool(before.packages and after.packages)
    earlier, later = functions(before).keys(), functions(after).keys()
    # What costs or has won most first.
    changes = tuple(
        sorted(
            _changes(before, after, limits),
            key=lambda of: (-abs(of.lost), of.what, of.name, of.measure),
        )
    )
    timed = {change.name for change in changes if change.measure in TIMES}
    return RunComparison(
        before,
        after,
        changes,
        new=tuple(sorted(later - earlier)),
        vanished=tuple(sorted(earlier - later)),
        differences=differences(before.versions, after.versions),
        packages=differences(before.packages, after.packages) if have_packages else (),
        untimed=tuple(sorted((earlier & later) - timed)),
    )


def _changes(before: Run, after: Run, limits: Limits) -> Iterator[RunChange]:
    machine = Machine(before, after, limits)
    earlier = functions(before)
    for name, function in functions(after).items():
        if name in earlier:
            latest = [r for r in after.snapshot.recompiles if r.function == name]
            yield from of_function(earlier[name], function, machine, tuple(latest))
    old, new = before.snapshot.usual, after.snapshot.usual
    steps = {loop.name: loop.steps for loop in after.snapshot.steps}
    yield from _marked("loop", "step_seconds", (old.steps, new.steps), steps, machine)
    served = {route.name: finished(route) for route in after.snapshot.requests}
    latencies = old.requests, new.requests
    yield from _marked("route", "request_seconds", latencies, served, machine)
    routes = {route.name: route for route in before.snapshot.requests}
    for route in after.snapshot.requests:
        if route.name in routes:
            change = failures(routes[route.name], route, limits)
            if change is not None:
                yield change
    yield from _memory(before, after)


def _marked(
    what: What,
    measure: str,
    sides: tuple[Mapping[str, Spread], Mapping[str, Spread]],
    calls: Mapping[str, int],
    machine: Machine,
) -> Iterator[RunChange]:
    old, new = sides
    for name in old.keys() & new.keys():
        found = old[name], new[name]
        number = calls.get(name, 0)
        of = Subject(what, name, measure)
        yield from times(of, found, calls=number, machine=machine)


def _memory(before: Run, after: Run) -> Iterator[RunChange]:
    old, new = before.snapshot, after.snapshot
    peaks = {device.device: device.peak for device in old.memory.devices}
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
    old = {line.place: line.bytes for line in before.snapshot.allocations.lines}
    grown = [
        (line.bytes - old.get(line.place, 0.0), line)
        for line in after.snapshot.allocations.lines
    ]
    grown.sort(key=lambda item: -item[0])
    for by, line in grown[:_MOST_LINES]:
        if by >= _WORTH_BYTES:
            yield f"{line.place} holds {size(line.bytes)}, {size(by)} more"


def lines(found: RunComparison, *, width: int) -> Iterator[str]:
    """Yield the lines to print, what is worse last, where a log ends."""
    if won := found.of("better"):
        more = f", and {len(won) - 1} more" if len(won) > 1 else ""
        text = f"won: {_named(won[0])}: {_outcome(won[0])}{more}"
        yield from wrapped(clean(text), width, rest=INDENT)
    yield shortened(f"before: {_run(found.before)}", width)
    yield shortened(f"after:  {_run(found.after)}", width)
    for changed in (*found.differences, *few(found.packages)):
        yield from wrapped(clean(changed), width, first="changed: ", rest=INDENT)
    yield from named("new", found.new, width)
    yield from named("vanished", found.vanished, width)
    for verdict, title in _TITLES:
        changes = found.of(verdict)
        if not changes:
            continue
        yield ""
        yield title
        shown = changes[:_MOST]
        for number, change in enumerate(shown, 1):
            yield from _change(number, change, width)
        if left := len(changes) - len(shown):
            yield f"{INDENT}and {left:,} more"
    yield from _unjudged(found, width)
    yield ""
    yield from wrapped(clean(sentence(found)), width, rest=INDENT)


def _unjudged(found: RunComparison, width: int) -> Iterator[str]:
    left = found.of("unjudged")
    if not left and not found.untimed:
        return
    yield ""
    yield "NOT JUDGED"
    indent = INDENT * 2
    sides = found.before.versions, found.after.versions
    setting = next(filter(None, map(why_untimed, sides)), "")
    if left:
        yield from wrapped(f"{FEW}, one a second:", width, first=INDENT, rest=INDENT)
    for change in left[:_MOST_UNJUDGED]:
        yield from wrapped(clean(_ranged(change)), width, first=indent, rest=indent * 2)
    if more := len(left) - _MOST_UNJUDGED:
        yield from [f"{indent}{more} more"] if more > 0 else []
    if found.untimed:
        names = ", ".join(few(found.untimed))
        why = f"; with {setting}, none is measured" if setting else ""
        text = clean(f"without times in one of the runs{why}: {names}")
        yield from wrapped(text, width, first=INDENT, rest=indent)
    advice = "Longer runs have enough; `jaxmon baseline` compares shorter ones. "
    if not left:
        advice = "" if setting else f"{_TIMED} "
    text = f"{advice}All else was counted exactly, and is judged."
    yield from wrapped(text, width, first=INDENT, rest=INDENT)


def _ranged(change: RunChange) -> str:
    """Return times with how they vary: of so few, a ratio would say too much."""
    middles = change.before, change.after
    sides = [
        f"{duration(middle)} ({duration(low)} to {duration(high)})"
        for middle, (low, high) in zip(middles, change.ranges, strict=True)
    ]
    of = " and ".join(f"{count:,}" for count in change.samples or ())
    return (
        f"{_named(change)}: {_DOES[change.measure]} {' → '.join(sides)}, {of} samples"
    )


def sentence(found: RunComparison) -> str:
    """Return the outcome as a sentence without a full stop."""
    compared = len({(change.what, change.name) for change in found.changes})
    worse = found.of("worse")
    if not compared:
        return "nothing to compare: the runs have no function, loop or route in common"
    if not worse:
        judged = {
            (change.what, change.name)
            for change in found.changes
            if change.reason != FEW
        }
        compared = len(judged)
        unclear = len(found.of("unclear"))
        more = f"; {counted(unclear, 'measure')} unclear" if unclear else ""
        if left := len(found.of("unjudged")):
            more += f"; {counted(left, 'time')} not judged"
        if found.untimed:
            more += f"; {counted(len(found.untimed), 'function')} without times"
        return f"nothing worse among {counted(compared, 'thing')} compared{more}"
    names = dict.fromkeys(_named(change) for change in worse)
    first = ", ".join(list(names)[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004
    return f"worse than before: {first}{more}"


def as_json(found: RunComparison) -> dict[str, Any]:
    """Return the comparison in JSON types."""
    return {
        "schema": SCHEMA,
        "worse": len(found.of("worse")),
        "unclear": len(found.of("unclear")),
        "unjudged": len(found.of("unjudged")),
        "before": _identity(found.before),
        "after": _identity(found.after),
        "differences": list(found.differences),
        "packages": list(found.packages),
        "new": list(found.new),
        "vanished": list(found.vanished),
        "untimed": list(found.untimed),
        "changes": [asdict(change) for change in found.changes],
    }


def _identity(run: Run) -> dict[str, Any]:
    process = run.snapshot.process
    return {
        "program": process.program,
        "host": run.host,
        "pid": process.pid,
        "written": run.written,
        "observed_seconds": process.observed_seconds,
        "state": run.state,
    }


def _run(run: Run) -> str:
    process = run.snapshot.process
    facts = [
        label(process.program) or "a process",
        f"{written} UTC" if (written := moment(run.written)) else "",
        f"observed for {duration(process.observed_seconds)}",
        f"JAX {process.jax}" if process.jax else "",
    ]
    return " · ".join(filter(None, facts))


def _change(number: int, change: RunChange, width: int) -> Iterator[str]:
    lead = f"{INDENT}{number}. "
    indent = " " * len(lead)
    place = f" ({change.place})" if change.place else ""
    text = f"{_named(change)}{place}: {_outcome(change)}"
    yield from wrapped(text, width, first=lead, rest=indent)
    facts = []
    if change.samples is not None:
        old, new = (f"{count:,}" for count in change.samples)
        counts = _COUNTS.get(change.measure, "samples")
        facts.append(f"{old} and {new} {counts}")
    if change.reason:
        often = ", one a second" if change.reason == FEW else ""
        facts.append(f"cannot tell: {change.reason}{often}")
    for fact in (*facts, *change.evidence):
        yield from wrapped(fact, width, first=f"{indent}{INDENT}", rest=indent * 2)


def _named(change: RunChange) -> str:
    if change.what in ("function", "process"):
        return change.name
    return f"{'requests to' if change.what == 'route' else change.what} {change.name}"


def _outcome(change: RunChange) -> str:
    before, after = change.before, change.after
    if change.measure == "recompiles":
        return f"recompiled {before:,.0f} → {after:,.0f} times"
    if change.measure == "errors":
        return f"failed {before:,.0f} → {after:,.0f} times"
    if change.measure == "failed_requests":
        return f"{share(before, 1)} → {share(after, 1)} failed"
    if change.measure == "peak_bytes":
        whose = "its program" if change.what == "function" else "it"
        return f"{whose} needs {size(before)} → {size(after)} of memory at its peak"
    if change.measure == "flops":
        return f"its program computes {amount(before)} → {amount(after)} FLOP a call"
    ratio = after / before if before else 0.0
    times = f"{ratio:.1f} times as long" if ratio else "longer"
    return f"{_DOES[change.measure]} {times}: {duration(before)} → {duration(after)}"
