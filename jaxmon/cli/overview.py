"""The sidecar's summary as lines of text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxmon.report.layout import size


if TYPE_CHECKING:
    from jaxmon_exporter.summary import DeviceSummary, FunctionSummary, Summary

_STEP = "train_step"
_LOW_HIT_RATE = 0.95
_LEAST_NAME = 26
LEAST_HEIGHT = 5
_COLUMNS = (
    ("CALLS", 9),
    ("HIT RATE", 10),
    ("COMPILES", 10),
    ("RECOMPILES", 12),
    ("COMPILING", 11),
)
# What a narrow terminal does without, first to last.
_DISPENSABLE = ("COMPILING", "COMPILES", "CALLS", "HIT RATE")
_INDENT = "  "
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Style:
    """How emphasis looks; without colour it does not."""

    colour: bool

    def strong(self, text: str) -> str:
        """Return *text* as a heading or a figure that matters."""
        return self._with("1", text)

    def quiet(self, text: str) -> str:
        """Return *text* as a label."""
        return self._with("2", text)

    def warning(self, text: str) -> str:
        """Return *text* as something to look at."""
        return self._with("33", text)

    def _with(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text


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
    """Return the figures that matter most."""
    return "  ".join(f"{label} {value}" for label, value in _figures(summary))


def table(summary: Summary, *, width: int, height: int, style: Style) -> list[str]:
    """
    Return totals, functions and devices in at most *height* lines of *width*.

    Functions that the program calls come first; those that do not fit share a line.
    Devices are left out where four functions would not fit beside them, and columns
    where names would have no room. Less than `LEAST_HEIGHT` lines would show nothing
    useful: the caller cuts.
    """
    totals = _totals_lines(summary, width, style)
    columns = _fitting(width)
    about_devices = [_device(device)[: width - 1] for device in summary["devices"]]
    if height < LEAST_HEIGHT + 2 + len(totals) + len(about_devices):
        about_devices = []
    beside = len(about_devices) + bool(about_devices) + len(totals) + 2
    room = max(height - beside, 2)
    functions = sorted(
        (one for one in summary["functions"] if one["calls"] or one["compile_seconds"]),
        key=lambda one: (-one["calls"], -one["compile_seconds"]),
    )
    fitting = len(functions) if len(functions) <= room else room - 1
    name = max(width - len(_INDENT) - sum(columns.values()), 1)
    heading = f"{_INDENT}{'FUNCTION':<{name}}" + "".join(
        f"{label:>{room}}" for label, room in columns.items()
    )
    lines = [*totals, "", style.strong(heading)]
    lines += [
        _row(one["name"], [one], name, columns, style) for one in functions[:fitting]
    ]
    if rest := functions[fitting:]:
        plain = Style(colour=False)
        lines.append(style.quiet(_row(f"{len(rest)} more", rest, name, columns, plain)))
    return [*lines, "", *about_devices] if about_devices else lines


def totals_table(summary: Summary) -> list[str]:
    """Return one total on each line."""
    return [f"{_INDENT}{label:<12}{value:>12}" for label, value in _totals(summary)]


def _totals_lines(summary: Summary, width: int, style: Style) -> list[str]:
    """Return the figures that matter most, on as many lines of *width* as they take."""
    lines: list[str] = []
    used = width
    for label, value in _figures(summary):
        length = len(label) + 1 + len(value)
        if used + 2 + length > width:
            lines.append("")
            used = 0
        lines[-1] += f"{_INDENT}{style.quiet(label)} {style.strong(value)}"
        used += len(_INDENT) + length
    return lines


def _figures(summary: Summary) -> list[tuple[str, str]]:
    figures = dict(_totals(summary))
    compiling = figures.pop("compiling")
    figures["compiles"] += f" in {compiling}"
    return list(figures.items())


def _fitting(width: int) -> Mapping[str, int]:
    """Return the columns, and their widths, that leave names some room in *width*."""
    columns = dict(_COLUMNS)
    for label in _DISPENSABLE:
        if width - len(_INDENT) - sum(columns.values()) >= _LEAST_NAME:
            break
        del columns[label]
    return columns


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
    name: str,
    functions: Iterable[FunctionSummary],
    room: int,
    columns: Mapping[str, int],
    style: Style,
) -> str:
    functions = list(functions)
    calls = sum(one["calls"] for one in functions)
    known = [one["hits"] for one in functions if one["hits"] is not None]
    rate = sum(known) / calls if known and calls else None
    cells = {
        "CALLS": f"{calls:,.0f}",
        "HIT RATE": _percent(rate),
        "COMPILES": f"{sum(one['compiles'] for one in functions):,.0f}",
        "RECOMPILES": f"{sum(one['recompiles'] for one in functions):,.0f}",
        "COMPILING": f"{sum(one['compile_seconds'] for one in functions):,.2f} s",
    }
    texts = {label: f"{cells[label]:>{wide}}" for label, wide in columns.items()}
    if rate is not None and rate < _LOW_HIT_RATE and "HIT RATE" in texts:
        texts["HIT RATE"] = style.warning(texts["HIT RATE"])
    return f"{_INDENT}{shortened(name, room - 1):<{room}}" + "".join(texts.values())


def shortened(name: str, room: int) -> str:
    """Return *name* without as many of its leading parts as *room* asks for."""
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
    """Return *seconds* as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _percent(ratio: float | None) -> str:
    return _UNKNOWN if ratio is None else f"{100 * ratio:.1f} %"
