"""What a game day shows: a line for each drill, and a table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from jaxmon.cli import output
from jaxmon.cli.gameday.screen import BOLD, QUIET, WARNING, Line, clock
from jaxmon.host.formats.layout import INDENT, UNKNOWN, Column, table, wrapped
from jaxmon_alerts.gameday.drill import Drill, DrillPhase
from jaxmon_alerts.gameday.scenarios import Scenario


_NAME, _GUIDE = 16, 4
# The line below the drills, and the one that the cursor is on.
_BESIDE = 2
_STYLES = {
    DrillPhase.WAITING: QUIET,
    DrillPhase.STARTING: QUIET,
    DrillPhase.BROKEN: WARNING,
}
_RESULTS = (
    Column("SCENARIO", _NAME, right=False),
    Column("", _GUIDE, right=False),
    Column("ALERT", right=False),
    Column("SEVERITY", 9, right=False),
    Column("DETECTED", 10),
    Column("RESOLVED", 10),
)


class AlertPlace(NamedTuple):
    """Where to look: uid of the dashboard, title of the panel, and runbook command."""

    board: str
    panel: str
    runbook: str


def places_of(alerts: Iterable[str]) -> list[AlertPlace]:
    """
    Return for each of *alerts* the panel with the fewest, which says the most of it.
    """
    from jaxmon_dashboards import boards as dashboards

    panels = [
        (board.uid, panel)
        for board in dashboards.all_dashboards()
        for panel in board.panels
    ]
    places = []
    for alert in alerts:
        found = [candidate for candidate in panels if alert in candidate[1].alerts]
        if not found:
            msg = f"no panel lists {alert}"
            raise LookupError(msg)
        uid, panel = min(found, key=lambda candidate: len(candidate[1].alerts))
        places.append(AlertPlace(uid, panel.title, f"jaxmon runbook show {alert}"))
    return places


class ProgressLog:
    """A line whenever something changed, for output that cannot be redrawn."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._shown: dict[str, str] = {}

    def show(self, drills: Sequence[Drill], /) -> None:
        """Print the drills that changed."""
        elapsed = clock(time.monotonic() - self._began)
        for drill in drills:
            name, text = drill.scenario.name, progress(drill)
            if drill.phase is not DrillPhase.WAITING and self._shown.get(name) != text:
                self._shown[name] = text
                output.line(f"  {elapsed}  {name:<{_NAME}}{text}")


def drawn(
    drills: Sequence[Drill], size: tuple[int, int], *, began: float
) -> list[Line]:
    """Return a line for each drill and one for all, as many as fit the *size*."""
    room = max(size[1] - _BESIDE, 1)
    shown = drills
    if len(drills) > room:
        # A terminal cannot redraw what has left it: those that change, then.
        still = (DrillPhase.WAITING, DrillPhase.DONE)
        shown = [drill for drill in drills if drill.phase not in still][:room]
    done = sum(drill.result.outcome is not None for drill in drills)
    elapsed = clock(time.monotonic() - began)
    foot = f"{INDENT}{elapsed}   {done} of {len(drills)} done   Ctrl-C stops"
    return [*map(_line, shown), ((foot, QUIET),)]


def _line(drill: Drill) -> Line:
    outcome = drill.result.outcome
    if outcome is None:
        mark, style = " ", _STYLES.get(drill.phase, "")
    else:
        mark, style = ("✓", "green") if outcome == "passed" else ("✗", "red")
    return (
        (f"{INDENT}{mark} ", style),
        (f"{drill.scenario.name:<{_NAME}}", BOLD),
        (progress(drill), "" if outcome == "passed" else style),
    )


def progress(drill: Drill) -> str:
    """Return what has become of *drill* so far, on one line that grows."""
    result, scenario = drill.result, drill.scenario
    if drill.phase is DrillPhase.WAITING:
        return str(drill.phase.value)
    parts = []
    if drill.phase in (DrillPhase.STARTING, DrillPhase.SETTLING):
        parts.append(drill.phase.value)
    elif drill.phase is DrillPhase.BROKEN:
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
        for scenario in scenarios
        for line in wrapped(
            f"{scenario.summary}: {scenario.alert}",
            width,
            first=f"{INDENT}{scenario.name:{_NAME}}{scenario.guide:{_GUIDE}}",
            rest=indent,
        )
    ]


def table_of(drills: Sequence[Drill], *, width: int) -> list[str]:
    """Return a table of what was detected and resolved, and when."""
    rows = [
        (
            drill.scenario.name,
            drill.scenario.guide,
            drill.scenario.alert,
            drill.result.severity or UNKNOWN,
            _seconds(drill.result.detected),
            _seconds(drill.result.resolved),
        )
        for drill in drills
    ]
    return table(_RESULTS, rows, width=width)


def guidance(drills: Iterable[Drill], places: Iterable[AlertPlace]) -> list[str]:
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
    failed = [
        drill.scenario.name for drill in drills if drill.result.outcome != "passed"
    ]
    passed = len(drills) - len(failed)
    text = f"{passed} of {len(drills)} passed"
    return f"{text}; not {', '.join(failed)}" if failed else text


def document(
    drills: Iterable[Drill], places: Iterable[AlertPlace]
) -> list[dict[str, Any]]:
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
