"""Charts as SVG: lines over time, a bar of parts, and a small one in a cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeAlias

from jaxmon.facts.marked import Series
from jaxmon.host.formats.layout import amount, duration, share, size
from jaxmon.screens.html.elements import NOTHING, Html, element, text
from jaxmon.screens.section import moment


_WIDTH, _HEIGHT = 360, 100
_FEWEST = 3
_DAY = 86_400
# So many times what 95 % are below is shown, if higher values flatten all others.
_BEYOND = 3
# A gap is where this many times the usual distance has no point.
_GAP = 3.5


class _Axis(NamedTuple):
    """Unix times: where all charts begin and end, and what is marked in them."""

    start: float
    end: float
    marked: Sequence[float] = ()

    def x(self, time: float) -> float:
        return _WIDTH * (time - self.start) / max(self.end - self.start, 1e-9)

    def ends(self) -> Html:
        form = "%b %d %H:%M" if self.end - self.start >= _DAY else "%H:%M:%S"
        shown = (element("span", text(moment(time, form))) for time in self[:2])
        return element("div", *shown, class_="ends")


class _Chart(NamedTuple):
    title: str
    shown: Callable[[float], str]
    lines: Sequence[tuple[str, str]]
    top: float | None = None


_Line: TypeAlias = tuple[str, str, Series]
"""The name of a series, its title in a legend, and its values."""

_CHARTS = (
    _Chart(
        "Requests a second", amount, (("requests", "finished"), ("errors", "failed"))
    ),
    _Chart("Latency of warm requests", duration, (("latency", "mean"),)),
    _Chart("Steps a second", amount, (("steps", "steps"),)),
    _Chart("Step time", duration, (("step_seconds", "mean"),)),
    _Chart(
        "Time spent compiling", lambda part: share(part, 1), (("compiling", "part"),), 1
    ),
    _Chart("Memory", size, (("device_memory", "devices"), ("host_memory", "host"))),
)
_WARNS = ("errors", "host_memory")


def charts(series: Mapping[str, Series], marked: Iterable[float] = ()) -> Html:
    """Return a chart of each of *series* that shows something; times are *marked*."""
    found = [(chart, lines) for chart in _CHARTS if (lines := _lines(chart, series))]
    times = [time for _, lines in found for *_, line in lines for time in line.times]
    if not times:
        return NOTHING
    axis = _Axis(min(times), max(times))
    inside = [time for time in marked if axis.start <= time <= axis.end]
    axis = axis._replace(marked=inside)
    drawn = [_chart(chart, lines, axis) for chart, lines in found]
    return element("div", *drawn, class_="charts")


def bar(parts: Iterable[float], label: str) -> Html:
    """Return a bar of *parts*, fractions of 1, each in a colour of its own."""
    drawn, start = [], 0.0
    for number, part in enumerate(parts):
        place = {"x": f"{100 * start:.2f}%", "width": f"{100 * part:.2f}%"}
        drawn.append(element("rect", class_=f"c{number}", height="100%", **place))
        start += part
    return element("svg", *drawn, class_="parts", role="img", aria_label=label)


def small_bar(part: float) -> Html:
    """Return a small bar for *part* of a whole, from 0 to 1."""
    width = f"{100 * min(max(part, 0.0), 1.0):.1f}%"
    filled = element("rect", class_="filled", height="100%", width=width)
    return element("svg", filled, class_="part", aria_hidden="true")


def _lines(chart: _Chart, series: Mapping[str, Series]) -> list[_Line]:
    """Return the lines of *chart* that are known, none if all are zero."""
    found = [
        (name, title, line)
        for name, title in chart.lines
        if (line := series.get(name)) is not None
        and len(line.times) == len(line.values) >= _FEWEST
        and (any(line.values) or name == "errors")
    ]
    return found if any(any(line.values) for *_, line in found) else []


def _chart(chart: _Chart, found: Sequence[_Line], axis: _Axis) -> Html:
    values = sorted(value for *_, line in found for value in line.values)
    usual = _BEYOND * values[int(0.95 * (len(values) - 1))]
    top = chart.top or (usual if values[-1] > 2 * usual > 0 else values[-1])
    shown = chart.shown(top)
    if top < values[-1]:
        shown += f"; at most {chart.shown(values[-1])}"
    lines = [
        element("polyline", points=points, class_=_tone(name))
        for name, _, line in found
        for points in _points(line, axis, top)
    ]
    grid = [
        element("line", x1=0, x2=_WIDTH, y1=y, y2=y, class_="grid")
        for y in (0.5, _HEIGHT / 2, _HEIGHT - 0.5)
    ]
    grid += [
        element("line", x1=x, x2=x, y1=0, y2=_HEIGHT, class_="marked")
        for x in map(axis.x, axis.marked)
    ]
    ranges = ", ".join(
        f"{title} {chart.shown(min(line.values))} to {chart.shown(max(line.values))}"
        for _, title, line in found
    )
    drawing = element(
        "svg",
        *grid,
        *lines,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{chart.title}: {ranges}",
    )
    title = element("span", text(chart.title))
    above = element("span", text(shown), class_="top")
    return element(
        "figure",
        element("figcaption", title, _legend(found, chart)),
        element("div", above, drawing, class_="plot"),
        axis.ends(),
        class_="card chart",
    )


def _legend(found: Sequence[_Line], chart: _Chart) -> Html:
    return element(
        "span",
        *[
            element(
                "b",
                text(f"{title} " if len(found) > 1 else ""),
                text(chart.shown(median(line.values))),
                class_=_tone(name),
            )
            for name, title, line in found
        ],
        class_="legend",
    )


def _points(line: Series, axis: _Axis, top: float) -> Iterator[str]:
    steps = sorted(b - a for a, b in zip(line.times, line.times[1:], strict=False))
    gap = _GAP * steps[len(steps) // 2]
    points: list[str] = []
    last = axis.start
    for time, value in zip(line.times, line.values, strict=True):
        if points and time - last > gap:
            yield " ".join(points)
            points = []
        y = _HEIGHT * (1 - min(value / top, 1.0))
        points.append(f"{axis.x(time):.1f},{y:.1f}")
        last = time
    yield " ".join(points)


def _tone(name: str) -> str:
    return "warns" if name in _WARNS else "plain"
