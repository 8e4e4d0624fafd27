"""What the demo shows: tables, or a line from time to time."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jaxmon.cli import output
from jaxmon.cli.gameday.screen import BOLD, QUIET, WARNING, Line, clock, plain
from jaxmon.host.formats import layout
from jaxmon.host.formats.layout import (
    ELLIPSIS,
    INDENT,
    UNKNOWN,
    Column,
    clean,
    ending,
    table,
    wrapped,
)
from jaxmon_alerts.gameday.stack import ActiveAlert


if TYPE_CHECKING:
    from jaxmon.facts.status import DeviceSummary, FunctionSummary, Summary

_STEP = "train_step"
_LOW_HIT_RATE = 0.95
_LINE_SECONDS = 10.0
_HEIGHT = 24
_LEAST_HEIGHT = 5
_MOST_ALERTS = 6
_BLANK: Line = ()


def _last_parts(name: str, room: int) -> str:
    """Return *name* without leading parts until it fits *room* columns."""
    cut = ending(name, room)
    return cut if cut == name or "." not in cut else ELLIPSIS + cut[cut.index(".") :]


_LEAST_NAME = 23
_FUNCTIONS = (
    Column("FUNCTION", right=False, cut=_last_parts),
    Column("CALLS", 9),
    Column("HIT RATE", 10),
    Column("COMPILES", 10),
    Column("RECOMPILES", 12),
    Column("COMPILE TIME", 14),
)
# Columns that a narrow terminal omits, first to last.
_DISPENSABLE = ("COMPILE TIME", "COMPILES", "CALLS", "HIT RATE")

_LEAST_ABOUT = 16
_ALERTS = (
    Column("ALERT", 31, right=False),
    Column("STATE", 9, right=False),
    Column("SEVERITY", 10, right=False),
    Column("SUBJECT", right=False, cut=_last_parts),
    Column("SINCE", 9),
)
_DISPENSABLE_ALERTS = ("SEVERITY", "SINCE")


@dataclass(frozen=True, slots=True)
class DisplayState:
    """What to display at one time; *alerts* is `None` without Prometheus."""

    elapsed: float
    summary: Summary
    alerts: Sequence[ActiveAlert] | None = None
    fault: str = ""
    broken: bool = False


class SceneRow(NamedTuple):
    """A row of a table: cells by heading, the heading of the cell with a *warning*."""

    cells: Mapping[str, str]
    warning: str = ""
    quiet: bool = False


class SceneLog:
    """A line from time to time, for output that cannot be redrawn."""

    def __init__(self, places: Mapping[str, str]) -> None:
        output.lines(f"{INDENT}{name:<18}{place}" for name, place in places.items())
        self._next = 0.0
        self._active: set[str] = set()
        self._broken = False

    def show(self, scene: DisplayState) -> None:
        """Print a line when one is due, or a fault or an alert starts or ends."""
        time = clock(scene.elapsed)
        due = scene.elapsed >= self._next
        if due:
            self._next = scene.elapsed + _LINE_SECONDS
            output.line(f"  {time}  {one_line(scene.summary)}")
        if scene.fault and (due or scene.broken != self._broken):
            output.line(f"  {time}  {scene.fault}")
        self._broken = scene.broken
        described = [str(alert) for alert in scene.alerts or ()]
        for alert in described:
            if alert not in self._active:
                output.line(f"  {time}  {alert}")
        for alert in sorted(self._active.difference(described)):
            state, _, rest = alert.partition("  ")
            if state == "firing":
                output.line(f"  {time}  resolved  {rest}")
        self._active = set(described)


def drawn(
    scene: DisplayState,
    size: tuple[int, int],
    *,
    places: Mapping[str, str],
    duration: float | None,
) -> list[Line]:
    """Return a screen of *size*; *places* are URLs or commands by what they show."""
    width, height = size
    end = "" if duration is None else f" of {clock(duration)}"
    time = f"  {clock(scene.elapsed)}{end}   Ctrl-C stops"
    above = [*_where(places, width), _BLANK, ((time, QUIET),)]
    if scene.fault:
        above.append(((f"  {scene.fault}", WARNING),))
    room = height - len(above)
    below: list[Line] = []
    if scene.alerts is not None:
        # In addition: a blank line, the heading, how many more, what to do.
        most = min(_MOST_ALERTS, max(room - _LEAST_HEIGHT - 4, 1))
        below = alerts(scene.alerts, width=width, most=most)
    shown = overview(scene.summary, width=width, height=room - len(below))
    return [*above, *shown, *below]


def finish(scene: DisplayState) -> None:
    """Print the tables that remain when the demo has ended."""
    width = shutil.get_terminal_size().columns
    output.line()
    output.line(f"  After {clock(scene.elapsed)}")
    output.lines(plain(overview(scene.summary, width=width, height=_HEIGHT)))
    if scene.alerts:
        output.lines(plain(alerts(scene.alerts, width=width)))


def steps(summary: Summary) -> int:
    """Return the training steps done: the calls of the step function."""
    return int(
        sum(
            function.calls
            for function in summary.functions
            if function.name.rpartition(".")[2] == _STEP
        )
    )


def one_line(summary: Summary) -> str:
    """Return the most important values."""
    return "  ".join(f"{label} {value}" for label, value in _figures(summary))


def totals_table(summary: Summary) -> list[str]:
    """Return one total on each line."""
    return [f"{INDENT}{label:<12}{value:>12}" for label, value in _totals(summary)]


def overview(summary: Summary, *, width: int, height: int) -> list[Line]:
    """
    Return totals, functions and devices for at most *height* lines of *width*.
    Functions that the program calls come first; the rest share a row. Devices are
    omitted if fewer than four functions would fit. The caller cuts fewer than
    `_LEAST_HEIGHT` lines.
    """
    totals = _in_lines(_figures(summary), width)
    devices: list[Line] = [
        ((_device(device)[: width - 1], ""),) for device in summary.devices
    ]
    if height < _LEAST_HEIGHT + 2 + len(totals) + len(devices):
        devices = []
    beside = len(devices) + bool(devices) + len(totals) + 2
    columns = _fitting(_FUNCTIONS, _DISPENSABLE, width - _LEAST_NAME)
    rows = _functions(summary.functions, most=max(height - beside, 2))
    below = [_BLANK, *devices] if devices else []
    return [*totals, _BLANK, *_table(columns, rows, width), *below]


def alerts(
    active: Sequence[ActiveAlert], *, width: int, most: int = _MOST_ALERTS
) -> list[Line]:
    """Return at most *most* alerts, how many are omitted, and what to do."""
    if not active:
        return [_BLANK, ((f"{INDENT}no alerts", QUIET),)]
    rows = [
        SceneRow(
            {
                "ALERT": alert.name,
                "STATE": alert.state,
                "SEVERITY": alert.severity,
                "SUBJECT": alert.subject.partition("=")[2],
                "SINCE": clock(alert.age()),
            },
            warning="STATE" if alert.firing else "",
            quiet=not alert.firing,
        )
        for alert in active[:most]
    ]
    if (rest := len(active) - most) > 0:
        rows.append(SceneRow({"ALERT": f"{rest} more"}, quiet=True))
    columns = _fitting(_ALERTS, _DISPENSABLE_ALERTS, width - _LEAST_ABOUT)
    runbook = f"jaxmon runbook show {active[0].name}"
    hint = ((f"{INDENT}runbook: ", QUIET), (runbook, ""))
    return [_BLANK, *_table(columns, rows, width), hint]


def _where(places: Mapping[str, str], width: int) -> Iterable[Line]:
    """Yield the places, those too long for *width* below their names, never cut."""
    for name, place in places.items():
        if len(line := f"{INDENT}{name:<18}{place}") <= width:
            yield ((line, ""),)
        else:
            yield ((f"{INDENT}{name}", ""),)
            for part in wrapped(clean(place), width, first="    "):
                yield ((part, ""),)


def _table(
    columns: Sequence[Column], rows: Sequence[SceneRow], width: int
) -> list[Line]:
    if len(INDENT) + sum(column.size for column in columns) >= width:
        columns = [column for column in columns if column.size]
    cells = [
        [clean(row.cells.get(column.heading, "")) for column in columns] for row in rows
    ]
    heading, *lines = table(columns, cells, width=width)
    return [((heading, BOLD),), *map(_styled, rows, lines)]


def _styled(row: SceneRow, line: str) -> Line:
    if row.quiet or not row.warning:
        return ((line, QUIET if row.quiet else ""),)
    before, cell, after = line.partition(row.cells[row.warning])
    return (before, ""), (cell, WARNING), (after, "")


def _fitting(
    columns: Sequence[Column], dispensable: Iterable[str], room: int
) -> Sequence[Column]:
    """Return those of *columns* that have *room*, without the first *dispensable*."""
    for heading in dispensable:
        if len(INDENT) + sum(column.size for column in columns) <= room:
            break
        columns = [column for column in columns if column.heading != heading]
    return columns


def _in_lines(figures: Iterable[tuple[str, str]], width: int) -> list[Line]:
    lines: list[list[tuple[str, str]]] = []
    used = width
    for label, value in figures:
        length = len(f"{INDENT}{label} {value}")
        if used + length > width:
            lines.append([])
            used = 0
        lines[-1] += [(INDENT, ""), (label, QUIET), (" ", ""), (value, BOLD)]
        used += length
    return list(lines)


def _figures(summary: Summary) -> list[tuple[str, str]]:
    figures = dict(_totals(summary))
    seconds = figures.pop("compile time")
    figures["compiles"] += f" in {seconds}"
    return list(figures.items())


def _totals(summary: Summary) -> list[tuple[str, str]]:
    totals = summary.totals
    return [
        ("steps", f"{steps(summary):,}"),
        ("calls", f"{totals.calls:,.0f}"),
        ("hit rate", _percent(totals.hit_rate)),
        ("compiles", f"{totals.compiles:,.0f}"),
        ("recompiles", f"{totals.recompiles:,.0f}"),
        ("compile time", f"{totals.compile_seconds:,.1f} s"),
    ]


def _functions(functions: Iterable[FunctionSummary], *, most: int) -> list[SceneRow]:
    used = sorted(
        (called for called in functions if called.calls or called.compile_seconds),
        key=lambda function: (-function.calls, -function.compile_seconds),
    )
    fitting = len(used) if len(used) <= most else most - 1
    rows = [_row(function.name, [function]) for function in used[:fitting]]
    if rest := used[fitting:]:
        rows.append(_row(f"{len(rest)} more", rest)._replace(warning="", quiet=True))
    return rows


def _row(name: str, functions: Sequence[FunctionSummary]) -> SceneRow:
    calls = sum(function.calls for function in functions)
    hits = [function.hits for function in functions if function.hits is not None]
    rate = sum(hits) / calls if hits and calls else None
    low = rate is not None and rate < _LOW_HIT_RATE
    seconds = sum(function.compile_seconds for function in functions)
    cells = {
        "FUNCTION": name,
        "CALLS": f"{calls:,.0f}",
        "HIT RATE": _percent(rate),
        "COMPILES": f"{sum(function.compiles for function in functions):,.0f}",
        "RECOMPILES": f"{sum(function.recompiles for function in functions):,.0f}",
        "COMPILE TIME": f"{seconds:,.2f} s",
    }
    return SceneRow(cells, warning="HIT RATE" if low else "")


def _device(device: DeviceSummary) -> str:
    text = f"{INDENT}worker {device.worker}  device {device.device}"
    if device.kind:
        text += f" ({device.kind})"
    if (used := device.memory_in_use) is not None:
        text += f"   memory {layout.size(used)}"
        if limit := device.memory_limit:
            text += f" of {layout.size(limit)}"
    if (arrays := device.live_arrays) is not None:
        text += f"   live arrays {arrays:,.0f}"
    if (held := device.live_array_bytes) is not None:
        text += f", {layout.size(held)}"
    return text


def _percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f} %"
