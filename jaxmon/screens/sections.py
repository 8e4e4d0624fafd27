"""
The sections of a report that are about compiles: findings, functions, recompiles.

Those that are lines have at most *width* columns, the heading first; none if there is
nothing to report.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice

from jaxmon.facts.events import Recompile
from jaxmon.facts.functions import Function
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import (
    INDENT,
    UNKNOWN,
    Column,
    ago,
    counted,
    duration,
    share,
    share_of_time,
    shortened,
    wrapped,
)
from jaxmon.screens.section import Section
from jaxmon.symptoms.findings import about, verdict
from jaxmon.symptoms.recompiles import recompile_advice
from jaxmon.symptoms.symptom import Finding, Urgency


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


def findings(
    found: Sequence[Finding],
    width: int,
    *,
    observed: float,
    room: int | None = None,
    over: bool = False,
) -> list[str]:
    """
    Return what to change, the most urgent first.

    Args:
        found: may be empty, which is stated.
        width: of a line.
        observed: seconds that the figures are about.
        room: maximum number of lines; what does not fit is counted, not shown.
        over: whether the program has come to its end.
    """
    lines = ["FINDINGS"]
    if quiet := verdict(found):
        lines.append(f"{INDENT}{quiet}" + (_TAKES_TIME if found else ""))
    for number, one in enumerate(found, 1):
        block = _finding(number, one, width, observed, brief=room is not None)
        rest = len(found) - number
        if room is not None and len(lines) + len(block) + bool(rest) > room:
            if number > 1:
                left = counted(rest + 1, "further finding")
                hint = _OF_ANOTHER_RUN if over else _WHILE_IT_RUNS
                return [*lines, f"{INDENT}{left}: {hint}"]
            block = block[: room - len(lines)]
        lines += block
    return lines


def functions(snapshot: Snapshot, *, most: int = _MOST_FUNCTIONS) -> Section:
    """Return the functions by compile time."""
    took, observed = snapshot.compile_time, snapshot.process.observed_seconds
    if not snapshot.functions or not took:
        return Section(_FUNCTIONS)
    users = [one for one in snapshot.functions if not one.internal]
    operations = [
        one for one in snapshot.functions if one.internal and one.compile_time
    ]
    shown = [one for one in users if one.compile_time or one.calls][:most]
    rows = [(one.name, [one]) for one in shown]
    if others := [one for one in users if one not in shown]:
        rows.append((f"{len(others)} more", others))
    if operations:
        rows.append((f"eager operations ({len(operations)})", operations))
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
    if loading := snapshot.load_time:
        about += f"; {duration(loading)} of loading from the persistent cache"
    return Section(
        _FUNCTIONS,
        about,
        layout,
        [_function_row(*row) for row in rows],
        [one.place for one in shown],
        [_UNCOUNTED] if any(one.never_called for one in shown) else [],
    )


def _finding(
    number: int, finding: Finding, width: int, observed: float, *, brief: bool
) -> list[str]:
    lead = f"{INDENT}{number}. "
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
    """
    Return what a finding would win back of the *observed* seconds, and which panel
    shows it.
    """
    seconds, said = min(seconds, observed), []
    if seconds > 0 and urgency == Urgency.TIME.name.lower():
        part = share(seconds, observed)
        said.append(f"To win back: {duration(seconds)}, {part} of the time")
    return [*said, f"panel {panel}"] if panel else said


def _see(finding: Finding, observed: float) -> str:
    """Return what a finding would win back, and where to read on."""
    topic = about(finding)
    urgency = topic.urgency.name.lower()
    said = won_back(urgency, finding.seconds, observed, topic.panel)
    if topic.runbook:
        said.append(f"jaxmon runbook show {topic.runbook}")
    return " · ".join(said)


def _function_row(name: str, entries: Sequence[Function]) -> list[str]:
    counted = [one for one in entries if not one.never_called]
    calls = [one.calls for one in counted if one.calls is not None]
    hits = [one.hits for one in entries if one.hits is not None]
    recompiled = sum(sum(one.recompiles.values()) for one in entries)
    return [
        name,
        f"{sum(calls):,}" if calls else UNKNOWN,
        share(sum(hits), sum(calls)) if hits and sum(calls) else UNKNOWN,
        f"{sum(one.built for one in entries):,}",
        f"{recompiled:,}",
        duration(sum(one.compile_time for one in entries)),
    ]


def recompiles(snapshot: Snapshot, found: Sequence[Finding], width: int) -> list[str]:
    """
    Return the recompiles by function and cause; advice where `findings` has none, once
    for each cause.
    """
    lines = []
    advised = {one.subject for one in found if one.topic == "recompile"}
    told_about = set[str]()
    shown = [f for f in snapshot.functions if f.recompiles and not f.internal]
    for function in shown[:_MOST_FUNCTIONS]:
        causes = sorted(function.recompiles.items(), key=lambda one: -one[1])
        details = ", ".join(f"{cause} {n:,}" for cause, n in causes)
        text = f"{shortened(function.name, _MOST_OF_A_NAME)}: {details}"
        lines += wrapped(text, width, first=INDENT, rest=INDENT * 3)
        latest = [one for one in snapshot.recompiles if one.function == function.name]
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
    newest = sorted(found, key=lambda one: -one.time)
    groups = groupby(newest, key=lambda one: (one.cause, one.texts))
    for (cause, differences), group in islice(groups, _MOST_RECOMPILES):
        same = list(group)
        facts = [f"{len(same)} identical"] if len(same) > 1 else []
        if same[0].seconds is not None:
            facts.append(duration(same[0].seconds))
        facts.append(ago(now - same[0].time))
        if same[0].trace_id:
            facts.append(f"trace {same[0].trace_id}")
        details = list(differences[:_MOST_DIFFERENCES]) or [cause]
        if rest := len(differences) + same[0].omitted - len(details):
            details += [f"and {rest} more"] if rest > 0 else []
        what = "; ".join(shortened(one, _MOST_OF_A_TEXT) for one in details)
        text = f"{what} ({', '.join(facts)})"
        lines += wrapped(text, width, first=INDENT * 2, rest=INDENT * 4)
    return lines
