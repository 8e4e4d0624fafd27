"""What a game day shows, as text: a line for each drill, and a table at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from jaxmon.cli.gameday.drill import Drill, Phase
from jaxmon.cli.gameday.places import Place
from jaxmon.formats.layout import INDENT, UNKNOWN, Column, table, wrapped
from jaxmon.gameday import Scenario


_NAME, _GUIDE = 16, 4
_RESULTS = (
    Column("SCENARIO", _NAME, right=False),
    Column("", _GUIDE, right=False),
    Column("ALERT", right=False),
    Column("SEVERITY", 9, right=False),
    Column("DETECTED", 10),
    Column("RESOLVED", 10),
)


def progress(drill: Drill) -> str:
    """Return what has become of *drill* so far, on one line that grows."""
    result, scenario = drill.result, drill.scenario
    if drill.phase is Phase.WAITING:
        return str(drill.phase.value)
    parts = []
    if drill.phase in (Phase.STARTING, Phase.SETTLING):
        parts.append(drill.phase.value)
    elif drill.phase is Phase.BROKEN:
        parts.append(f"broken: {scenario.summary}")
    if result.detected is not None:
        parts.append(f"{scenario.alert} after {result.detected:.0f} s")
        if result.outcome is None:
            parts.append("mended")
    if result.resolved is not None:
        parts.append(f"resolved after {result.resolved:.0f} s")
    if result.outcome not in (None, "passed"):
        parts.append(f"{str(result.outcome).upper()}: {result.reason}")
    return ", ".join(parts)


def listing(scenarios: Iterable[Scenario], *, width: int) -> list[str]:
    """Return each scenario with what happens and the alert that reports it."""
    indent = " " * (len(INDENT) + _NAME + _GUIDE)
    return [
        line
        for one in scenarios
        for line in wrapped(
            f"{one.summary}: {one.alert}",
            width,
            first=f"{INDENT}{one.name:{_NAME}}{one.guide:{_GUIDE}}",
            rest=indent,
        )
    ]


def results(drills: Sequence[Drill], *, width: int) -> list[str]:
    """Return a table of what was detected and resolved, and when."""
    rows = [
        (
            one.scenario.name,
            one.scenario.guide,
            one.scenario.alert,
            one.result.severity or UNKNOWN,
            _seconds(one.result.detected),
            _seconds(one.result.resolved),
        )
        for one in drills
    ]
    return table(_RESULTS, rows, width=width)


def guidance(drills: Iterable[Drill], places: Iterable[Place]) -> list[str]:
    """Return where each alert is seen, and what to read when it fires."""
    lines = []
    for drill, place in zip(drills, places, strict=True):
        lines += [
            f"{INDENT}{drill.scenario.alert}",
            f"{INDENT}{INDENT}panel    {place.panel} ({place.board})",
            f"{INDENT}{INDENT}runbook  {place.runbook}",
        ]
        if drill.result.others:
            others = ", ".join(drill.result.others)
            lines.append(f"{INDENT}{INDENT}also     {others}")
    return lines


def verdict(drills: Sequence[Drill]) -> str:
    """Return how many passed, and which did not."""
    failed = [one.scenario.name for one in drills if one.result.outcome != "passed"]
    passed = len(drills) - len(failed)
    text = f"{passed} of {len(drills)} passed"
    return f"{text}; not {', '.join(failed)}" if failed else text


def document(drills: Iterable[Drill], places: Iterable[Place]) -> list[dict[str, Any]]:
    """Return the results in JSON types; times are in seconds."""
    return [
        {
            "scenario": drill.scenario.name,
            "guide": drill.scenario.guide,
            "summary": drill.scenario.summary,
            "alert": drill.scenario.alert,
            **asdict(drill.result),
            **place._asdict(),
        }
        for drill, place in zip(drills, places, strict=True)
    ]


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f} s"
