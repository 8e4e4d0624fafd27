"""
What the demo shows, as plain lines: one from time to time, and a table at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jaxmon.cli import output
from jaxmon.cli.demo.alerts import ActiveAlert
from jaxmon.formats.layout import ELLIPSIS, INDENT, UNKNOWN, Column, clean, ending, size
from jaxmon.formats.layout import table as laid_out


if TYPE_CHECKING:
    from jaxmon.facts.host import DeviceSummary, FunctionSummary, Summary

_STEP = "train_step"
_LOW_HIT_RATE = 0.95
_LINE_SECONDS = 10.0
WIDTH, HEIGHT = 80, 24
LEAST_HEIGHT = 5
MOST_ALERTS = 6


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
    """
    State to display at one point in time.

    Attributes:
        elapsed: seconds since the start.
        summary: what the sidecar knows.
        alerts: active alerts; `None` without Prometheus.
        fault: description of the current or upcoming fault; empty without one.
        broken: whether the fault is active.
    """

    elapsed: float
    summary: Summary
    alerts: Sequence[ActiveAlert] | None = None
    fault: str = ""
    broken: bool = False


class Row(NamedTuple):
    """
    A row of a table.

    Attributes:
        cells: text by heading.
        warning: heading of the cell to highlight, if any.
        quiet: whether the row is less important than others.
    """

    cells: Mapping[str, str]
    warning: str = ""
    quiet: bool = False


class Table(NamedTuple):
    """Rows, and those columns that fit."""

    columns: Sequence[Column]
    rows: Sequence[Row]

    def lines(self, width: int) -> list[str]:
        """Return heading and rows as text."""
        cells = (self.cells(row) for row in self.rows)
        return laid_out(self.columns, cells, width=width)

    def cells(self, row: Row) -> list[str]:
        """Return the cells of *row*, column by column, each sanitised."""
        return [clean(row.cells.get(one.heading, "")) for one in self.columns]


class Overview(NamedTuple):
    """
    As much of a summary as there is room for.

    Attributes:
        totals: labels and values, line by line.
        functions: those that the program calls come first; the rest share a row.
        devices: a line for each.
    """

    totals: Sequence[Sequence[tuple[str, str]]]
    functions: Table
    devices: Sequence[str]

    def lines(self, width: int) -> list[str]:
        """Return all of it as text."""
        totals = [
            "".join(f"{INDENT}{label} {value}" for label, value in line)
            for line in self.totals
        ]
        devices = ["", *self.devices] if self.devices else []
        return [*totals, "", *self.functions.lines(width), *devices]


class Log:
    """A line from time to time, for output that cannot be redrawn."""

    def __init__(self, places: Mapping[str, str]) -> None:
        output.lines(f"{INDENT}{name:<18}{place}" for name, place in places.items())
        self._next = 0.0
        self._active: set[str] = set()
        self._broken = False

    def show(self, scene: DisplayState) -> None:
        """
        Print a line when one is due, and when the fault or an alert starts or ends.
        """
        time = clock(scene.elapsed)
        due = scene.elapsed >= self._next
        if due:
            self._next = scene.elapsed + _LINE_SECONDS
            output.line(f"  {time}  {one_line(scene.summary)}")
        if scene.fault and (due or scene.broken != self._broken):
            output.line(f"  {time}  {scene.fault}")
        self._broken = scene.broken
        described = [str(one) for one in scene.alerts or ()]
        for one in described:
            if one not in self._active:
                output.line(f"  {time}  {one}")
        for one in sorted(self._active.difference(described)):
            state, _, rest = one.partition("  ")
            if state == "firing":
                output.line(f"  {time}  resolved  {rest}")
        self._active = set(described)

    def finish(self, scene: DisplayState) -> None:
        """Print the table, once."""
        finish(scene, width=WIDTH)


def finish(scene: DisplayState, *, width: int) -> None:
    """Print the tables that remain when the demo has ended."""
    output.line()
    output.line(f"  After {clock(scene.elapsed)}")
    output.lines(overview(scene.summary, width=width, height=HEIGHT).lines(width))
    if scene.alerts:
        output.line()
        output.lines(alerts(scene.alerts, width=width).lines(width))
        output.line(f"{INDENT}runbook: {runbook(scene.alerts)}")


def steps(summary: Summary) -> int:
    """Return the training steps done: the calls of the step function."""
    return int(
        sum(
            function["calls"]
            for function in summary["functions"]
            if function["name"].rpartition(".")[2] == _STEP
        )
    )


def one_line(summary: Summary) -> str:
    """Return the most important values."""
    return "  ".join(f"{label} {value}" for label, value in _figures(summary))


def totals_table(summary: Summary) -> list[str]:
    """Return one total on each line."""
    return [f"{INDENT}{label:<12}{value:>12}" for label, value in _totals(summary)]


def overview(summary: Summary, *, width: int, height: int) -> Overview:
    """
    Return totals, functions and devices for at most *height* lines of *width*.

    Devices are omitted if fewer than four functions would fit, and columns if names
    would have no room. Fewer than `LEAST_HEIGHT` lines would show nothing useful: the
    caller cuts.
    """
    totals = _in_lines(_figures(summary), width)
    devices = [_device(device)[: width - 1] for device in summary["devices"]]
    if height < LEAST_HEIGHT + 2 + len(totals) + len(devices):
        devices = []
    beside = len(devices) + bool(devices) + len(totals) + 2
    columns = _fitting(_FUNCTIONS, _DISPENSABLE, width - _LEAST_NAME)
    rows = _functions(summary["functions"], most=max(height - beside, 2))
    return Overview(totals, Table(columns, rows), devices)


def alerts(
    active: Sequence[ActiveAlert], *, width: int, most: int = MOST_ALERTS
) -> Table:
    """Return at most *most* alerts, and how many are omitted."""
    rows = [
        Row(
            {
                "ALERT": one.name,
                "STATE": one.state,
                "SEVERITY": one.severity,
                "SUBJECT": one.subject.partition("=")[2],
                "SINCE": clock(one.age()),
            },
            warning="STATE" if one.firing else "",
            quiet=not one.firing,
        )
        for one in active[:most]
    ]
    if (rest := len(active) - most) > 0:
        rows.append(Row({"ALERT": f"{rest} more"}, quiet=True))
    return Table(_fitting(_ALERTS, _DISPENSABLE_ALERTS, width - _LEAST_ABOUT), rows)


def runbook(active: Sequence[ActiveAlert]) -> str:
    """Return the command that says what to do about the first of *active*."""
    return f"jaxmon runbook show {active[0].name}"


def clock(seconds: float) -> str:
    """Return *seconds* as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _fitting(
    columns: Sequence[Column], dispensable: Iterable[str], room: int
) -> Sequence[Column]:
    """Return those of *columns* that have *room*, without the first *dispensable*."""
    for heading in dispensable:
        if len(INDENT) + sum(one.size for one in columns) <= room:
            break
        columns = [one for one in columns if one.heading != heading]
    return columns


def _in_lines(
    figures: Iterable[tuple[str, str]], width: int
) -> list[list[tuple[str, str]]]:
    """Return *figures* wrapped to lines of *width*."""
    lines: list[list[tuple[str, str]]] = []
    used = width
    for label, value in figures:
        length = len(f"{INDENT}{label} {value}")
        if used + length > width:
            lines.append([])
            used = 0
        lines[-1].append((label, value))
        used += length
    return lines


def _figures(summary: Summary) -> list[tuple[str, str]]:
    figures = dict(_totals(summary))
    seconds = figures.pop("compile time")
    figures["compiles"] += f" in {seconds}"
    return list(figures.items())


def _totals(summary: Summary) -> list[tuple[str, str]]:
    totals = summary["totals"]
    return [
        ("steps", f"{steps(summary):,}"),
        ("calls", f"{totals['calls']:,.0f}"),
        ("hit rate", _percent(totals["hit_rate"])),
        ("compiles", f"{totals['compiles']:,.0f}"),
        ("recompiles", f"{totals['recompiles']:,.0f}"),
        ("compile time", f"{totals['compile_seconds']:,.1f} s"),
    ]


def _functions(functions: Iterable[FunctionSummary], *, most: int) -> list[Row]:
    used = sorted(
        (one for one in functions if one["calls"] or one["compile_seconds"]),
        key=lambda one: (-one["calls"], -one["compile_seconds"]),
    )
    fitting = len(used) if len(used) <= most else most - 1
    rows = [_row(one["name"], [one]) for one in used[:fitting]]
    if rest := used[fitting:]:
        rows.append(_row(f"{len(rest)} more", rest)._replace(warning="", quiet=True))
    return rows


def _row(name: str, functions: Sequence[FunctionSummary]) -> Row:
    calls = sum(one["calls"] for one in functions)
    known = [one["hits"] for one in functions if one["hits"] is not None]
    rate = sum(known) / calls if known and calls else None
    low = rate is not None and rate < _LOW_HIT_RATE
    cells = {
        "FUNCTION": name,
        "CALLS": f"{calls:,.0f}",
        "HIT RATE": _percent(rate),
        "COMPILES": f"{sum(one['compiles'] for one in functions):,.0f}",
        "RECOMPILES": f"{sum(one['recompiles'] for one in functions):,.0f}",
        "COMPILE TIME": f"{sum(one['compile_seconds'] for one in functions):,.2f} s",
    }
    return Row(cells, warning="HIT RATE" if low else "")


def _device(device: DeviceSummary) -> str:
    text = f"{INDENT}worker {device['worker']}  device {device['device']}"
    if device["kind"]:
        text += f" ({device['kind']})"
    if (used := device["memory_in_use"]) is not None:
        text += f"   memory {size(used)}"
        if limit := device["memory_limit"]:
            text += f" of {size(limit)}"
    if (arrays := device["live_arrays"]) is not None:
        text += f"   live arrays {arrays:,.0f}"
    if (held := device["live_array_bytes"]) is not None:
        text += f", {size(held)}"
    return text


def _percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f} %"
