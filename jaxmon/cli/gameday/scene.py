"""
What changes, on a terminal or as a line from time to time; and what the demo shows.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from jaxmon.cli import output
from jaxmon.host.formats import layout
from jaxmon.host.formats.layout import ELLIPSIS, INDENT, clean, ending, table, wrapped
from jaxmon.screens.section import (
    Fields,
    T,
    fitting,
    number,
    shown,
    tabulated,
    whole,
    words,
)
from jaxmon_alerts.gameday.stack import ActiveAlert


if TYPE_CHECKING:
    from jaxmon.facts.status import DeviceSummary, FunctionSummary, Summary, Totals

BOLD, QUIET, WARNING = "bold", "dim", "yellow"

Line = Sequence[tuple[str, str]]
"""The parts of a line, each with its style."""

State = TypeVar("State")

Draw = Callable[[State, tuple[int, int]], Iterable[Line]]
"""Returns the lines of a state, for a width and a height."""


@contextmanager
def view(
    draw: Draw[State], log: Callable[[], Callable[[State], None]]
) -> Iterator[Callable[[State], None]]:
    """Yield what shows states: on the whole terminal, or by a *log* without one."""
    if not (output.is_terminal(sys.stdout) and sys.stdin and sys.stdin.isatty()):
        yield log()
        return
    from jaxmon.cli.top.terminal import Terminal, line

    with Terminal() as terminal:

        def show(state: State) -> None:
            terminal.draw([line(*parts) for parts in draw(state, terminal.size)])

        yield show


def plain(lines: Iterable[Line]) -> list[str]:
    """Return *lines* without styles."""
    return ["".join(text for text, _ in line) for line in lines]


def clock(seconds: float) -> str:
    """Return *seconds* as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


_STEP = "train_step"
_LOW_HIT_RATE = 0.95
_LINE_SECONDS = 10.0
_HEIGHT = 24
_LEAST_HEIGHT = 5
_MOST_ALERTS = 6
_BLANK: Line = ()
# Of a row for several functions.
_SHARED = " more"


def _last_parts(name: str, room: int) -> str:
    cut = ending(name, room)
    return cut if cut == name or "." not in cut else ELLIPSIS + cut[cut.index(".") :]


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"


_LEAST_NAME = 25
_Row: TypeAlias = "tuple[str, Totals]"
_FUNCTIONS: Fields[_Row] = (
    words("FUNCTION", 0, lambda row: row[0], _last_parts),
    number("CALLS", 9, lambda row: row[1].calls, whole),
    number("HIT RATE", 10, lambda row: row[1].hit_rate, _percent),
    number("COMPILES", 10, lambda row: row[1].compiles, whole),
    number("RECOMPILES", 12, lambda row: row[1].recompiles, whole),
    number("COMPILE TIME", 14, lambda row: row[1].compile_seconds, "{:,.2f} s".format),
)
# Columns that a narrow terminal omits, first to last.
_DISPENSABLE = ("COMPILE TIME", "COMPILES", "CALLS", "HIT RATE")

_LEAST_ABOUT = 18
_ALERTS: Fields[ActiveAlert] = (
    words("ALERT", 31, lambda alert: alert.name),
    words("STATE", 9, lambda alert: alert.state),
    words("SEVERITY", 10, lambda alert: alert.severity),
    words("SUBJECT", 0, lambda alert: alert.subject.partition("=")[2], _last_parts),
    number("SINCE", 9, lambda alert: alert.age(), clock),
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


class SceneLog:
    """A line from time to time, for output that cannot be redrawn."""

    def __init__(self, places: Mapping[str, str]) -> None:
        output.lines(f"{INDENT}{name:<18}{place}" for name, place in places.items())
        self._next = 0.0
        self._active: set[str] = set()
        self._broken = False
        self._answered: tuple[object, ...] = ()

    def show(self, scene: DisplayState) -> None:
        """Print a line when due, and when a fault, an alert or the answer changes."""
        time = clock(scene.elapsed)
        due = scene.elapsed >= self._next
        if due:
            self._next = scene.elapsed + _LINE_SECONDS
            output.line(f"  {time}  {one_line(scene.summary)}")
        if scene.fault and (due or scene.broken != self._broken):
            output.line(f"  {time}  {scene.fault}")
        self._broken = scene.broken
        if (gist := _gist(scene.summary)) != self._answered and gist[0]:
            self._answered = gist
            output.line(f"  {time}  {scene.summary.answer.text}")
        described = [str(alert) for alert in scene.alerts or ()]
        for alert in described:
            if alert not in self._active:
                output.line(f"  {time}  {alert}")
        for alert in sorted(self._active.difference(described)):
            state, _, rest = alert.partition("  ")
            if state == "firing":
                output.line(f"  {time}  resolved  {rest}")
        self._active = set(described)


def _gist(summary: Summary) -> tuple[object, ...]:
    """Return what the answer says without its numbers, which change all the time."""
    answer = summary.answer
    reasons = [(reason.kind, reason.subject) for reason in answer.reasons[:1]]
    return (answer.text and answer.state, *reasons)


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
    for text in wrapped(clean(scene.summary.answer.text), width - 1, first=INDENT):
        bad = scene.summary.answer.state in ("failing", "degraded")
        above.append(((text, WARNING if bad else BOLD),))
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
    rows = _functions(summary.functions, most=max(height - beside, 2))
    fields = fitting(_FUNCTIONS, _DISPENSABLE, width - _LEAST_NAME)
    below = [_BLANK, *devices] if devices else []
    return [*totals, _BLANK, *_table(fields, rows, width, _style), *below]


def alerts(
    active: Sequence[ActiveAlert], *, width: int, most: int = _MOST_ALERTS
) -> list[Line]:
    """Return at most *most* alerts, how many are omitted, and what to do."""
    if not active:
        return [_BLANK, ((f"{INDENT}no alerts", QUIET),)]
    fields = fitting(_ALERTS, _DISPENSABLE_ALERTS, width - _LEAST_ABOUT)
    rows = _table(fields, active[:most], width, _style_of_alert)
    if (rest := len(active) - most) > 0:
        rows.append(((f"{INDENT}{rest} more", QUIET),))
    runbook = f"jaxmon runbook show {active[0].name}"
    hint = ((f"{INDENT}runbook: ", QUIET), (runbook, ""))
    return [_BLANK, *rows, hint]


def _where(places: Mapping[str, str], width: int) -> Iterable[Line]:
    for name, place in places.items():
        if len(line := f"{INDENT}{name:<18}{place}") <= width:
            yield ((line, ""),)
        else:
            yield ((f"{INDENT}{name}", ""),)
            for part in wrapped(clean(place), width, first="    "):
                yield ((part, ""),)


def _table(
    fields: Fields[T],
    rows: Sequence[T],
    width: int,
    style: Callable[[T], tuple[str, str]],
) -> list[Line]:
    """Return a table; *style* returns a cell and how it, or else its row, looks."""
    if len(INDENT) + sum(column.size for column, _ in fields) >= width:
        fields = [field for field in fields if field[0].size]
    section = tabulated("", fields, rows)
    cells = [[clean(cell) for cell in row] for row in section.rows]
    heading, *lines = table(section.columns, cells, width=width)
    return [((heading, BOLD),), *map(_styled, lines, map(style, rows))]


def _styled(line: str, marked: tuple[str, str]) -> Line:
    cell, style = marked
    if not cell:
        return ((line, style),)
    before, cell, after = line.partition(cell)
    return (before, ""), (cell, style), (after, "")


def _style(row: _Row) -> tuple[str, str]:
    name, of = row
    if name.endswith(_SHARED):
        return "", QUIET
    if of.hit_rate is None or of.hit_rate >= _LOW_HIT_RATE:
        return "", ""
    return _percent(of.hit_rate), WARNING


def _style_of_alert(alert: ActiveAlert) -> tuple[str, str]:
    return (alert.state, WARNING) if alert.firing else ("", QUIET)


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
        ("hit rate", shown(totals.hit_rate, _percent)),
        ("compiles", f"{totals.compiles:,.0f}"),
        ("recompiles", f"{totals.recompiles:,.0f}"),
        ("compile time", f"{totals.compile_seconds:,.1f} s"),
    ]


def _functions(functions: Iterable[FunctionSummary], *, most: int) -> list[_Row]:
    from jaxmon.screens.status import totals

    used = sorted(
        (called for called in functions if called.calls or called.compile_seconds),
        key=lambda function: (-function.calls, -function.compile_seconds),
    )
    room = len(used) if len(used) <= most else most - 1
    rows = [(function.name, totals([function])) for function in used[:room]]
    if rest := used[room:]:
        rows.append((f"{len(rest)}{_SHARED}", totals(rest)))
    return rows


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
