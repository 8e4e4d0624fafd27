"""A report as text: complete for `jaxmon explain`, one screen for the exit report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from jaxmon.facts.events import Recompile
from jaxmon.facts.functions import FunctionFact
from jaxmon.facts.memory import Device
from jaxmon.facts.process import Process, Snapshot
from jaxmon.host.formats.layout import (
    INDENT,
    UNKNOWN,
    Column,
    ago,
    columns,
    counted,
    duration,
    ending,
    share,
    share_of_time,
    shortened,
    size,
    wrapped,
)
from jaxmon.screens import tables
from jaxmon.screens.notes import notes
from jaxmon.screens.section import Section
from jaxmon.screens.tables import goodput
from jaxmon.screens.time_table import time_table
from jaxmon.symptoms.compiles import program_size
from jaxmon.symptoms.findings import DOUBT, about, unjudged, verdict
from jaxmon.symptoms.recompiles import every_recompile_time, recompile_advice
from jaxmon.symptoms.symptom import Finding, Urgency
from jaxmon.symptoms.unmarked import call_text, calling


_FUNCTIONS = "COMPILE TIME"
_TAKES_TIME = " What takes the time:"
_WHILE_IT_RUNS = "run `jaxmon explain` while the process is running."
_OF_ANOTHER_RUN = "JAXMON_SUMMARY_DIR=DIRECTORY keeps a whole report."
_UNCOUNTED = (
    "Calls of programs that were compiled ahead of time, or under jax.vmap or jax.grad "
    "outside of jit, are not counted."
)
_MOST_FUNCTIONS = 12
_MOST_RECOMPILES = 4
_MOST_DIFFERENCES = 3
_MOST_OF_A_NAME = 70
_MOST_OF_A_TEXT = 300


def finding_lines(
    found: Sequence[Finding],
    snapshot: Snapshot,
    width: int,
    *,
    room: int | None = None,
    over: str = "",
) -> list[str]:
    """
    Return what to change, the most urgent first.

    Args:
        found: may be empty, which is stated.
        snapshot: what the figures are about.
        width: of a line.
        room: maximum number of lines; what does not fit is counted, not shown.
        over: once the program has come to its end, where the others are.
    """
    lines, observed = ["FINDINGS"], snapshot.process.observed_seconds
    if quiet := verdict(found, "" if over else unjudged(snapshot)):
        lines.append(f"{INDENT}{quiet}" + (_TAKES_TIME if found else ""))
    for number, finding in enumerate(found, 1):
        block = _finding(number, finding, width, observed, brief=room is not None)
        rest = len(found) - number
        if room is not None and len(lines) + len(block) + bool(rest) > room:
            if number > 1:
                left = counted(rest + 1, "further finding")
                return [*lines, f"{INDENT}{left}: {over or _WHILE_IT_RUNS}"]
            block = block[: room - len(lines)]
        lines += block
    return lines


def functions(snapshot: Snapshot, *, most: int = _MOST_FUNCTIONS) -> Section:
    """Return the functions by compile time."""
    took, observed = snapshot.compile_time, snapshot.process.observed_seconds
    if not snapshot.functions or not took:
        return Section(_FUNCTIONS)
    users = snapshot.users
    internal = [of for of in snapshot.functions if of.internal and of.compile_time]
    shown = [user for user in users if user.compile_time or user.calls][:most]
    rows = [(user.name, [user]) for user in shown]
    if others := [user for user in users if user not in shown]:
        rows.append((f"{len(others)} more", others))
    if internal:
        rows.append((f"eager operations ({len(internal)})", internal))
    layout = [
        Column("FUNCTION", right=False),
        Column("CALLS", 10),
        Column("HIT RATE", 10),
        Column("COMPILES", 10),
        Column("RECOMPILES", 12),
        Column("COMPILE TIME", 14),
    ]
    about = f": {duration(took)}"
    if observed:
        about += f", {share_of_time(took, observed)}"
    if again := every_recompile_time(snapshot.users, snapshot):
        about += f"; {duration(again)} for recompiles"
    if loading := snapshot.load_time:
        about += f"; {duration(loading)} of loading from the persistent cache"
    return Section(
        _FUNCTIONS,
        about,
        layout,
        [_function_row(*row) for row in rows],
        [user.place for user in shown],
        [*_quiet(snapshot), *[_UNCOUNTED] * any(user.never_called for user in shown)],
    )


def _quiet(snapshot: Snapshot) -> Iterator[str]:
    ready = snapshot.ready
    if ready.quiet and not ready.since and snapshot.requests:
        yield (
            f"Inferred: ready for {duration(snapshot.process.now - ready.quiet)}, as "
            "five minutes without a compile came after its first ones; "
            f"{counted(ready.compiled, 'compile')} since then."
        )


def _finding(
    number: int, finding: Finding, width: int, observed: float, *, brief: bool
) -> list[str]:
    # That little was seen is no finding on the program.
    lead = f"{INDENT}{number}. " if finding.topic != DOUBT else INDENT
    indent = " " * len(lead)
    lines = wrapped(finding.verdict, width, first=lead, rest=indent)
    for evidence in finding.evidence:
        lines += wrapped(
            shortened(evidence, _MOST_OF_A_TEXT),
            width,
            first=f"{indent}{INDENT}",
            rest=f"{indent}{INDENT * 3}",
        )
    if finding.action:
        text = f"Advice: {finding.action}"
        lines += wrapped(text, width, first=indent, rest=indent)
    if not brief and (text := _see(finding, observed)):
        lines += wrapped(text, width, first=indent, rest=indent)
    return lines


def won_back(urgency: str, seconds: float, observed: float, panel: str) -> list[str]:
    """Return what part of the time a finding would win back, and the panel."""
    seconds, facts = min(seconds, observed), []
    if seconds > 0 and urgency == Urgency.TIME.name.lower():
        facts.append(f"To win back: up to {share(seconds, observed)} of the time")
    return [*facts, f"panel {panel}"] if panel else facts


def _see(finding: Finding, observed: float) -> str:
    topic = about(finding)
    urgency = topic.urgency.name.lower()
    facts = won_back(urgency, finding.seconds, observed, topic.panel)
    if topic.runbook:
        facts.append(f"jaxmon runbook show {topic.runbook}")
    return " · ".join(facts)


def _function_row(name: str, entries: Sequence[FunctionFact]) -> list[str]:
    counted = [function for function in entries if not function.never_called]
    calls = [function.calls for function in counted if function.calls is not None]
    hits = [function.hits for function in entries if function.hits is not None]
    recompiled = sum(sum(function.recompiles.values()) for function in entries)
    return [
        name,
        f"{sum(calls):,}" if calls else UNKNOWN,
        share(sum(hits), sum(calls)) if hits and sum(calls) else UNKNOWN,
        f"{sum(function.built for function in entries):,}",
        f"{recompiled:,}",
        duration(sum(function.compile_time for function in entries)),
    ]


def recompiles(snapshot: Snapshot, found: Sequence[Finding], width: int) -> list[str]:
    """Return the recompiles by function and cause, with advice that findings lack."""
    lines = []
    advised = {finding.subject for finding in found if finding.topic == "recompile"}
    told_about = set[str]()
    shown = [function for function in snapshot.users if function.recompiles]
    for function in shown[:_MOST_FUNCTIONS]:
        causes = sorted(function.recompiles.items(), key=lambda cause: -cause[1])
        details = ", ".join(f"{cause} {n:,}" for cause, n in causes)
        text = f"{shortened(function.name, _MOST_OF_A_NAME)}: {details}"
        lines += wrapped(text, width, first=INDENT, rest=INDENT * 3)
        latest = [of for of in snapshot.recompiles if of.function == function.name]
        lines += _latest(latest, snapshot.process.now, width)
        if function.name not in advised and causes[0][0] not in told_about:
            told_about.add(causes[0][0])
            text = f"Advice: {recompile_advice(causes[0][0])}"
            lines += wrapped(text, width, first=INDENT * 2, rest=INDENT * 2)
    if rest := len(shown) - _MOST_FUNCTIONS:
        lines += [f"{INDENT}and {rest} more functions"] if rest > 0 else []
    return ["RECOMPILES (latest first)", *lines] if lines else []


def _latest(found: Sequence[Recompile], now: float, width: int) -> list[str]:
    """Return the latest recompiles; consecutive identical ones are merged."""
    lines: list[str] = []
    for latest, facts in alike(found, now)[:_MOST_RECOMPILES]:
        trace = [f"trace {latest.trace_id}"] if latest.trace_id else []
        details = list(latest.texts[:_MOST_DIFFERENCES]) or [latest.cause]
        if rest := len(latest.texts) + latest.omitted - len(details):
            details += [f"and {rest} more"] if rest > 0 else []
        what = "; ".join(shortened(reason, _MOST_OF_A_TEXT) for reason in details)
        text = f"{what} ({', '.join([*facts, *trace])})"
        lines += wrapped(text, width, first=INDENT * 2, rest=INDENT * 4)
    return lines


def alike(found: Iterable[Recompile], now: float) -> list[tuple[Recompile, list[str]]]:
    """Return the latest of recompiles that differ in their time only, and facts."""
    newest = sorted(found, key=lambda event: -event.time)
    groups = groupby(newest, key=lambda event: (event.cause, event.texts))
    several = []
    for same in (list(group) for _, group in groups):
        facts = [f"{len(same)} identical"] if len(same) > 1 else []
        if same[0].seconds is not None:
            facts.append(duration(same[0].seconds))
        several.append((same[0], [*facts, ago(now - same[0].time)]))
    return several


WIDTH = 80
MOST_LINES = 40
"""Most lines of the exit report."""

_MOST_OF_A_SCREEN = 5
_MOST_STATES = 4


def explanation(
    snapshot: Snapshot, findings: Sequence[Finding], *, worker: str, width: int = WIDTH
) -> list[str]:
    """Return the full report on a running process in lines of *width* columns."""
    return _joined(
        [
            _head(snapshot, worker, width),
            finding_lines(findings, snapshot, width),
            time_table(snapshot).lines(width),
            goodput(snapshot.run).lines(width),
            tables.requests(snapshot).lines(width),
            tables.steps(snapshot).lines(width),
            tables.queues(snapshot).lines(width),
            functions(snapshot).lines(width),
            recompiles(snapshot, findings, width),
            tables.programs(snapshot).lines(width),
            tables.flops(snapshot).lines(width),
            tables.cache(snapshot).lines(width),
            tables.devices(snapshot).lines(width),
            tables.memory_lines(snapshot).lines(width),
            tables.transfers(snapshot).lines(width),
            tables.errors(snapshot).lines(width),
            notes(snapshot, width),
        ]
    )


def screen(
    snapshot: Snapshot,
    findings: Sequence[Finding],
    *,
    worker: str,
    width: int = WIDTH,
    height: int = MOST_LINES,
) -> list[str]:
    """Return the process and its findings in at most *height* lines."""
    head = [*_head(snapshot, worker, width), ""]
    room = height - len(head)
    return [*head, *finding_lines(findings, snapshot, width, room=room)]


def summary(
    snapshot: Snapshot,
    findings: Sequence[Finding],
    *,
    crash: str = "",
    kept: str = "",
) -> list[str]:
    """
    Return the exit report, the *crash* first, in at most `MOST_LINES` lines, and where
    the whole one is *kept*.
    """
    width = WIDTH
    title = f"── {shortened(f'jaxmon: {snapshot.process.program}', width - 8)} "
    facts = [
        [title + "─" * (width - columns(title)), *wrapped(crash, width)],
        time_table(snapshot, most=_MOST_STATES).lines(width),
        functions(snapshot, most=_MOST_OF_A_SCREEN).lines(width),
        _memory(snapshot, width),
    ]
    above = _joined(facts)
    where = wrapped(f"Whole report: {kept}", width) if kept else []
    room = MOST_LINES - len(above) - len(where) - 2
    over = "see the whole report." if kept else _OF_ANOTHER_RUN
    below = finding_lines(findings, snapshot, width, room=room, over=over)
    return [*_joined([above, below]), *where, "─" * width]


def heading(process: Process, worker: str, width: int) -> str:
    """Return the line identifying the process."""
    pid = f"pid {process.pid}" if process.pid else ""
    who = [f"worker {worker}", str(process.rank), pid, process.program]
    return shortened(" · ".join(filter(None, who)), width)


def _head(snapshot: Snapshot, worker: str, width: int) -> list[str]:
    process = snapshot.process
    since = [
        f"observed for {duration(process.observed_seconds)}",
        f"release {process.release}" if process.release else "",
        f"JAX {process.jax}" if process.jax else "",
        f"Python {process.python}" if process.python else "",
        process.url,
    ]
    if snapshot.compiling.count:
        since.append(
            f"compiling now, for {duration(snapshot.compiling.oldest_seconds)}"
        )
    now, called = snapshot.time.now, call_text(calling(snapshot))
    compiles = f"Compiling {now.function}." if now.state == "compile" else ""
    if program := program_size(snapshot.compiling) or compiles * bool(now.function):
        called = f"{program} {called}"
    return [
        heading(process, worker, width),
        shortened(" · ".join(filter(None, since)), width),
        *wrapped(called, width),
    ]


def _memory(snapshot: Snapshot, width: int) -> list[str]:
    """Return a line on the fullest device, at its peak: at exit, little is left."""
    peaks = [(_peak(device, snapshot), device) for device in snapshot.memory.devices]
    held, device = max(peaks, key=lambda peak: peak[0], default=(0.0, Device()))
    if not held:
        return []
    if device.peak:
        details = f"peak {size(held)}"
        details += f" of {size(device.limit)}" if device.limit else ""
    else:
        details = f"peak of the snapshots {size(held)} in live arrays"
    lines = [f"DEVICE MEMORY: {details}, on device {device.device}"]
    seen = snapshot.allocations.peak_of(device.device)
    # The allocator's peak has more than arrays, and is of another moment.
    other = seen.bytes and size(seen.bytes) != size(held)
    of = f" of {size(seen.bytes)} in a snapshot" if other else ""
    for top in seen.lines[:1]:
        text = f"{INDENT}largest{of}: {size(top.bytes)} from "
        lines.append(text + ending(top.place, width - columns(text)))
    return [shortened(line, width) for line in lines]


def _peak(device: Device, snapshot: Snapshot) -> float:
    """Return the most bytes on *device*: of its allocator, or in any snapshot."""
    seen = snapshot.allocations.peak_of(device.device).bytes
    return device.peak or max(device.live_bytes_peak or 0.0, seen)


def _joined(parts: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of the *parts* that have any, an empty line between two."""
    lines: list[str] = []
    for part in parts:
        if part:
            lines += ["", *part] if lines else part
    return lines
