"""
The sections of a report that are tables of facts: what a program marks, programs and
what they compute, cache, memory, transfers, errors.

Each is empty if there is nothing to report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from jaxmon.catalog import RUN_ACTIVITIES
from jaxmon.facts.functions import FunctionFact, Uncounted
from jaxmon.facts.marked import Finished, Loop, QueueFacts
from jaxmon.facts.memory import Device, Line, Transfer
from jaxmon.facts.process import Snapshot
from jaxmon.facts.run import RunRecord, Saving, plausible, saving
from jaxmon.host.formats.layout import (
    UNKNOWN,
    Column,
    ago,
    amount,
    counted,
    duration,
    ending,
    estimate,
    share,
    size,
)
from jaxmon.screens.section import (
    Fields,
    Section,
    more,
    number,
    ratio,
    shown,
    tabulated,
    whole,
    words,
)
from jaxmon.symptoms.runs import interruptions


_MOST_ROWS = 12
_MOST_DEVICES = 8
_MOST_PLACES = 8
_MOST_REPORTS = 3
_MOST_UNKNOWN = 4
_LONG_SECONDS = 1.0
_WORTH_SECONDS = 0.001
_DIRECTIONS = {
    "device_to_host": "to host",
    "host_to_device": "to device",
    "sync": "sync",
}
_WHY: Mapping[str, str] = {
    "loop": "a while loop whose number of trips is unknown",
    "branch": "branches that need different FLOPs",
    "kernel": "a kernel without a cost estimate",
    "library": "a library computes",
    "layout": "this JAX describes it in a way that jaxmon does not know",
    "size": "its program is too large to be counted",
    "untraced": "its program was not seen when JAX lowered it",
    "format": "there is no peak for operands of the format",
    "programs": "several programs that its calls do not distinguish",
    "uncounted": "its calls are not counted",
}


def _bound(function: FunctionFact) -> str:
    place = function.flops.roofline
    if place is None:
        return UNKNOWN
    return "arithmetic" if place.intensity >= place.ridge else "memory"


def _why(unknown: Uncounted) -> str:
    reason = _WHY.get(unknown.reason, unknown.reason)
    if unknown.reason in ("library", "format"):
        reason = f"{reason} {unknown.what}"
    return f"{reason}, at {unknown.where}." if unknown.where else f"{reason}."


def _growth(growth: float) -> str:
    return f"{'+' if growth > 0 else ''}{size(growth)}" if growth else "0"


def _movement(line: Transfer) -> str:
    direction = _DIRECTIONS.get(line.direction, line.direction)
    return f"{direction}, {line.how}" if line.how not in ("", "unknown") else direction


def _percent(part: float) -> str:
    return f"{100 * part:.3g} %"


def _frequency(seconds: float) -> str:
    return amount(1 / seconds)


def _last_step(loop: Loop) -> str:
    return shown(loop.last_step_seconds, ago) if loop.running else "ended"


def _change(queue: QueueFacts) -> str:
    if queue.growth is None or not queue.growth_seconds:
        return UNKNOWN
    return f"{queue.growth:+,} in {duration(queue.growth_seconds)}"


_GAP = (Column("", 2), lambda _: "")

_Outcome: TypeAlias = tuple[str, Finished]
"""The name of a route, empty if the row above has it, and finished requests."""

_REQUESTS: Fields[_Outcome] = (
    words("ROUTE", 0, lambda row: row[0]),
    words("OUTCOME", 14, lambda row: row[1].outcome.replace("_", " ")),
    words("START", 9, lambda row: row[1].start),
    number("COUNT", 10, lambda row: row[1].count, whole),
    number("P50", 11, lambda row: row[1].p50_seconds, estimate),
    number("P95", 11, lambda row: row[1].p95_seconds, estimate),
)
_STEPS: Fields[Loop] = (
    words("LOOP", 0, lambda loop: loop.name),
    number("STEPS", 10, lambda loop: loop.steps, whole),
    number("A SECOND", 10, lambda loop: loop.mean_seconds or None, _frequency),
    number("MEAN", 10, lambda loop: loop.mean_seconds, duration),
    number("P95", 10, lambda loop: loop.p95_seconds, estimate),
    number("DATA WAIT", 11, lambda loop: loop.data_wait_ratio, ratio),
    (Column("LAST STEP", 15), _last_step),
)
_QUEUES: Fields[QueueFacts] = (
    words("QUEUE", 0, lambda queue: queue.name),
    number("DEPTH NOW", 11, lambda queue: queue.depth, whole),
    number("GREATEST", 11, lambda queue: queue.maximum, whole),
    (Column("CHANGE", 26), _change),
)
_PROGRAMS: Fields[FunctionFact] = (
    words("FUNCTION", 0, lambda called: called.name),
    number("PROGRAMS", 10, lambda called: called.program.programs, whole),
    number("TEMP MEMORY", 13, lambda called: called.program.temporary_bytes, size),
    number("DISPATCH", 10, lambda called: called.samples.dispatch_seconds, duration),
    number("EXECUTION", 11, lambda called: called.samples.execution_seconds, duration),
)
_ARITHMETIC: Fields[FunctionFact] = (
    words("FUNCTION", 0, lambda called: called.name),
    number("FLOP", 9, lambda called: called.program.model_flops or 0, amount),
    number(
        "RECOMPUTED", 12, lambda called: called.program.recomputed_flops or None, amount
    ),
    number("FLOP/S", 9, lambda called: called.flops.achieved, amount),
    number("OF PEAK", 9, lambda called: called.flops.of_peak, _percent),
    (Column("BOUND BY", 12), _bound),
)
_DEVICES: Fields[Device] = (
    words("DEVICE", 0, lambda device: f"{device.device} {device.kind}".strip()),
    number("IN USE", 11, lambda device: device.in_use, size),
    number("PEAK", 11, lambda device: device.peak, size),
    number("LIMIT", 11, lambda device: device.limit, size),
    number("LIVE ARRAYS", 13, lambda device: device.live_arrays, whole),
    number("SIZE", 11, lambda device: device.live_bytes, size),
)
_TRANSFERS: Fields[Transfer] = (
    number("COUNT", 9, lambda line: line.count, whole),
    number("SIZE", 11, lambda line: line.bytes, size),
    number("BLOCKED", 12, lambda line: line.seconds, duration),
    _GAP,
    words("TRANSFER", 21, _movement),
    words("SOURCE LINE", 0, lambda line: line.place or UNKNOWN, ending),
)


def requests(snapshot: Snapshot, *, most: int = _MOST_ROWS) -> Section:
    """Return finished requests by route, outcome and start, and those that last."""
    routes = sorted(
        snapshot.requests, key=lambda route: -sum(some.count for some in route.finished)
    )
    found = [
        (route.name if not place else "", some)
        for route in routes
        for place, some in enumerate(
            sorted(
                route.finished, key=lambda some: (-some.count, some.outcome, some.start)
            )
        )
        if some.count
    ]
    waiting = [
        f"{route.name} {route.in_progress:,} (the oldest for "
        f"{duration(route.oldest_seconds)})"
        for route in routes
        if route.in_progress and route.oldest_seconds >= _LONG_SECONDS
    ]
    below = [*more(len(found) - most)]
    if waiting:
        below.append(f"in progress: {', '.join(waiting[:_MOST_ROWS])}")
    if snapshot.recognised:
        names = " and ".join(snapshot.recognised)
        below.append(f"of {names}; recognised, not marked")
    return tabulated("REQUESTS", _REQUESTS, found[:most], below=below)


def steps(snapshot: Snapshot, *, most: int = _MOST_ROWS) -> Section:
    """Return the steps of each loop, those with most steps first."""
    loops = sorted(snapshot.steps, key=lambda loop: -loop.steps)
    return tabulated("STEPS", _STEPS, loops[:most], below=more(len(loops) - most))


def queues(snapshot: Snapshot, *, most: int = _MOST_ROWS) -> Section:
    """Return the depth of each queue and how it has changed, deepest first."""
    found = sorted(snapshot.queues, key=lambda queue: -queue.depth)
    return tabulated("QUEUES", _QUEUES, found[:most], below=more(len(found) - most))


def programs(snapshot: Snapshot, *, most: int = _MOST_ROWS) -> Section:
    """Return XLA's analysis of each function's latest program, and call times."""
    found = [
        function
        for function in snapshot.users
        if function.program.programs or function.samples.samples
    ]
    found.sort(key=lambda function: -(function.calls or function.misses))
    about = " (latest per function; median times of sampled calls)"
    return _of_functions("PROGRAMS", _PROGRAMS, found[:most], about)


def flops(snapshot: Snapshot, *, most: int = _MOST_ROWS) -> Section:
    """Return the FLOPs of functions, what they achieve, what bounds them, or why."""
    users = snapshot.users
    found = [function for function in users if function.program.model_flops]
    found.sort(key=lambda user: -(user.program.model_flops or 0) * (user.calls or 0))
    below = [
        f"FLOPs of {function.name} are unknown: {_why(function.flops.unknown)}"
        for function in users
        if function.flops.unknown is not None and function.calls
    ][:_MOST_UNKNOWN]
    about = " (FLOPs of the model: matrix products and convolutions, each once)"
    section = _of_functions("ARITHMETIC", _ARITHMETIC, found[:most], about)
    return section._replace(about=about if found or below else "", below=below)


def cache(snapshot: Snapshot) -> Section:
    """Return persistent cache statistics and obstacles."""
    found = snapshot.cache
    hits, misses = found.requests.hit, found.requests.miss
    if found.enabled is None and not hits and not misses:
        return Section("PERSISTENT CACHE")
    if not found.enabled or not found.directory:
        about = ": off"
    else:
        about = f": {counted(hits, 'hit')}, {misses:,} "
        about += "miss" if misses == 1 else "misses"
        if found.saved_seconds > 0:
            about += f", {duration(found.saved_seconds)} saved"
        elif (cost := -found.saved_seconds - hits) > 0:
            # Each compile took less than a second more than JAX has stored.
            about += f", loading took {duration(cost)} longer than compiling"
    below = []
    if found.directory:
        facts = [
            found.directory,
            "" if found.entries is None else f"{found.entries:,} entries",
            "" if found.size_bytes is None else size(found.size_bytes),
            counted(found.writes, "write") if found.writes else "",
        ]
        below.append(", ".join(filter(None, facts)))
    below += [
        f"- {obstacle.message} {obstacle.advice}".strip()
        for obstacle in found.obstacles
    ]
    return Section("PERSISTENT CACHE", about, below=below)


def devices(snapshot: Snapshot, *, most: int = _MOST_DEVICES) -> Section:
    """Return device memory use."""
    found = snapshot.memory.devices
    below, time = more(len(found) - most), snapshot.memory.time
    about = f" (snapshot {ago(snapshot.process.now - time)})" if time else ""
    return tabulated("DEVICE MEMORY", _DEVICES, found[:most], about=about, below=below)


def memory_lines(snapshot: Snapshot, *, most: int = _MOST_PLACES) -> Section:
    """Return the source lines that hold most device memory."""
    found = snapshot.allocations
    once = found.time is not None and not found.seconds
    fields: Fields[Line] = (
        number("SIZE", 9, lambda line: line.bytes, size),
        number("ARRAYS", 10, lambda line: line.arrays, whole),
        number("GROWTH", 12, lambda line: None if once else line.growth_bytes, _growth),
        _GAP,
        words("SOURCE LINE", 0, lambda of: f"{of.place} {of.function}".strip(), ending),
    )
    lines = [line for line in found.lines if line.bytes][:most]
    about = ""
    if found.time is not None:
        about = f"snapshot {ago(snapshot.process.now - found.time)}"
        if found.seconds:
            about += f"; growth over the preceding {duration(found.seconds)}"
        about = f" ({about})"
    return tabulated("MEMORY BY SOURCE LINE", fields, lines, about=about)


def transfers(snapshot: Snapshot, *, most: int = _MOST_PLACES) -> Section:
    """Return the source lines that block longest on transfers."""
    lines = [
        line for line in snapshot.transfers.lines if line.seconds >= _WORTH_SECONDS
    ]
    return tabulated("TRANSFERS BETWEEN HOST AND DEVICE", _TRANSFERS, lines[:most])


def errors(snapshot: Snapshot) -> Section:
    """Return errors and the locations of their reports."""
    found = []
    for function in snapshot.functions:
        if kinds := {kind: n for kind, n in function.errors.items() if n}:
            details = ", ".join(f"{kind} {n:,}" for kind, n in kinds.items())
            found.append(f"{function.name}: {details}")
    reports = snapshot.errors.readable_reports[-_MOST_REPORTS:]
    return Section("ERRORS", below=[*found, *(f"report: {path}" for path in reports)])


def _of_functions(
    title: str, fields: Fields[FunctionFact], found: list[FunctionFact], about: str
) -> Section:
    section = tabulated(title, fields, found, about=about)
    return section._replace(notes=[function.place for function in found])


_ACTIVITIES = {
    "step": "steps, each once",
    "compile": "compiling",
    "data_wait": "waiting for data",
    "checkpoint": "saving checkpoints",
    "startup": "starting the first time",
    "recovery": "starting again, restoring",
    "lost_progress": "steps done again",
    "waiting": "between attempts",
    "marked": "activities that the program marks",
    "unknown": "unknown",
}
_GOODPUT_TITLE = "GOODPUT ACROSS RESTARTS"
_GOODPUT = (
    Column("ACTIVITY", 36, right=False),
    Column("TIME", 14),
    Column("SHARE", 9),
    Column("", right=False),
)


def goodput(found: RunRecord) -> Section:
    """Return the section of a report on the run that *found* is the record of."""
    record = plausible(found)
    if record is None:
        return Section(_GOODPUT_TITLE)
    wall = record.wall
    spent = {name: record.seconds.get(name, 0.0) for name in RUN_ACTIVITIES}
    rows = [
        (_ACTIVITIES[name], duration(seconds), share(seconds, wall), "")
        for name, seconds in sorted(spent.items(), key=lambda item: -item[1])
        if seconds
    ]
    about = f": {_result(record)} of run {record.run}"
    return Section(_GOODPUT_TITLE, about, _GOODPUT, rows, below=[*_sentences(record)])


def goodput_lines(record: RunRecord, width: int, *, now: float) -> list[str]:
    """Return what *record* says, in lines of *width*, at the Unix time *now*."""
    of_run = goodput(record)
    written = f"written {ago(max(now - record.time, 0.0))} by {record.host or 'a host'}"
    written += f"; this attempt {record.ended}" if record.ended else ""
    return of_run._replace(
        title=f"{record.run}: goodput",
        about=f" {_result(record)}",
        below=[*of_run.below, written],
    ).lines(width)


def goodput_document(record: RunRecord) -> dict[str, Any]:
    """Return *record* and the figures that follow from it."""
    saves = saving(record) or Saving(0.0, 0.0)
    return {
        **vars(record.filled()),
        "wall_seconds": record.wall,
        "goodput": record.goodput,
        "steps": record.steps,
        "seconds_between_interruptions": record.seconds_between,
        "seconds_to_resume": record.seconds_to_resume,
        "seconds_between_saves": saves.every or None,
        "best_seconds_between_saves": saves.best,
    }


def _result(record: RunRecord) -> str:
    rate = "unknown" if record.goodput is None else share(record.goodput, 1.0)
    return f"{rate} of {duration(record.wall)}, attempt {record.interrupted + 1:,}"


def _sentences(record: RunRecord) -> Iterator[str]:
    if record.marked:
        lost = f"; {record.lost_steps:,} had to be done again" * bool(record.lost_steps)
        yield f"{counted(record.steps, 'step')} done{lost}"
    else:
        yield "no steps are marked: what was progress is not known"
    yield from interruptions(record)
    if (saves := saving(record)) is not None:
        best = f"; every {duration(saves.best)} loses least" if saves.best else ""
        saved = counted(record.saves, "checkpoint")
        yield f"{saved} saved, every {duration(saves.every)} on average{best}"
    if record.fruitless > 1:
        yield f"{record.fruitless:,} attempts in a row have done no new step"
