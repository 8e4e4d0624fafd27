"""
The sidecar's summary as lines of text for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxmon.report.layout import size


if TYPE_CHECKING:
    from jaxmon_exporter.summary import DeviceSummary, FunctionSummary, Summary

_STEP = "train_step"
_LOW_HIT_RATE = 0.95
_LEAST_WIDTH = 80
LEAST_HEIGHT = 5
_COLUMNS = (
    ("CALLS", 9),
    ("HIT RATE", 10),
    ("COMPILES", 10),
    ("RECOMPILES", 12),
    ("COMPILING", 11),
)
_INDENT = "  "
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Style:
    """
    How emphasis looks; without colour it does not.
    """

    colour: bool

    def strong(self, text: str) -> str:
        """
        Return *text* as a heading or a figure that matters.
        """
        return self._with("1", text)

    def quiet(self, text: str) -> str:
        """
        Return *text* as a label.
        """
        return self._with("2", text)

    def warning(self, text: str) -> str:
        """
        Return *text* as something to look at.
        """
        return self._with("33", text)

    def _with(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text


def steps(summary: Summary) -> int:
    """
    Return the training steps done: the calls of the step function.
    """
    return int(
        sum(
            function["calls"]
            for function in summary["functions"]
            if function["name"].rpartition(".")[2] == _STEP
        )
    )


def one_line(summary: Summary) -> str:
    """
    Return the figures that matter most.
    """
    return _in_a_line(summary, Style(colour=False))


def table(summary: Summary, *, width: int, height: int, style: Style) -> list[str]:
    """
    Return totals, functions and devices in at most *height* lines of *width*.

    Functions that the program calls come first; those that do not fit share a line.
    Devices are left out where four functions would not fit beside them. Less than
    `LEAST_HEIGHT` lines of 80 columns would show nothing useful; the terminal cuts.
    """
    columns, devices = max(width, _LEAST_WIDTH), summary["devices"]
    about_devices = [_device(device)[: columns - 1] for device in devices]
    if height < LEAST_HEIGHT + 3 + len(about_devices):
        about_devices = []
    room = max(height - len(about_devices) - bool(about_devices) - 3, 2)
    functions = sorted(
        (one for one in summary["functions"] if one["calls"] or one["compile_seconds"]),
        key=lambda one: (-one["calls"], -one["compile_seconds"]),
    )
    fitting = len(functions) if len(functions) <= room else room - 1
    name = columns - len(_INDENT) - sum(room for _, room in _COLUMNS)
    heading = f"{_INDENT}{'FUNCTION':<{name}}" + "".join(
        f"{label:>{room}}" for label, room in _COLUMNS
    )
    lines = [f"{_INDENT}{_in_a_line(summary, style)}", "", style.strong(heading)]
    lines += [_row(one["name"], [one], name, style) for one in functions[:fitting]]
    if rest := functions[fitting:]:
        plain = Style(colour=False)
        lines.append(style.quiet(_row(f"{len(rest)} more", rest, name, plain)))
    return [*lines, "", *about_devices] if about_devices else lines


def totals_table(summary: Summary) -> list[str]:
    """
    Return one total on each line.
    """
    return [f"{_INDENT}{label:<12}{value:>12}" for label, value in _totals(summary)]


def _in_a_line(summary: Summary, style: Style) -> str:
    figures = dict(_totals(summary))
    compiling = figures.pop("compiling")
    figures["compiles"] += f" in {compiling}"
    return "  ".join(
        f"{style.quiet(label)} {style.strong(value)}"
        for label, value in figures.items()
    )


def _totals(summary: Summary) -> list[tuple[str, str]]:
    totals = summary["totals"]
    return [
        ("steps", f"{steps(summary):,}"),
        ("calls", f"{totals['calls']:,.0f}"),
        ("hit rate", _percent(totals["hit_rate"])),
        ("compiles", f"{totals['compiles']:,.0f}"),
        ("recompiles", f"{totals['recompiles']:,.0f}"),
        ("compiling", f"{totals['compile_seconds']:,.1f} s"),
    ]


def _row(
    name: str, functions: Iterable[FunctionSummary], room: int, style: Style
) -> str:
    functions = list(functions)
    calls = sum(one["calls"] for one in functions)
    known = [one["hits"] for one in functions if one["hits"] is not None]
    rate = sum(known) / calls if known and calls else None
    cells = (
        f"{calls:,.0f}",
        _percent(rate),
        f"{sum(one['compiles'] for one in functions):,.0f}",
        f"{sum(one['recompiles'] for one in functions):,.0f}",
        f"{sum(one['compile_seconds'] for one in functions):,.2f} s",
    )
    texts = [f"{cell:>{wide}}" for cell, (_, wide) in zip(cells, _COLUMNS, strict=True)]
    if rate is not None and rate < _LOW_HIT_RATE:
        texts[1] = style.warning(texts[1])
    return f"{_INDENT}{shortened(name, room - 1):<{room}}" + "".join(texts)


def shortened(name: str, room: int) -> str:
    """
    Return *name* without as many of its leading parts as *room* asks for.
    """
    if len(name) <= room:
        return name
    end = name[len(name) - room + 1 :]
    return "…" + (end[end.index(".") :] if "." in end else end)


def _device(device: DeviceSummary) -> str:
    text = f"{_INDENT}worker {device['worker']}  device {device['device']}"
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


def clock(seconds: float) -> str:
    """
    Return *seconds* as hours, minutes and seconds.
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _percent(ratio: float | None) -> str:
    return _UNKNOWN if ratio is None else f"{100 * ratio:.1f} %"
