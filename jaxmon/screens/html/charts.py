"""Charts as SVG: lines over time, a bar of parts, and a small one in a cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from jaxmon.facts.marked import Series
from jaxmon.host.formats.layout import amount, duration, share, size
from jaxmon.screens.html.elements import NOTHING, Html, element, text
from jaxmon.screens.section import moment


_WIDTH, _HEIGHT = 360, 100
_FEWEST = 3
# A gap is where this many times the usual distance has no point.
_GAP = 3.5


class _Chart(NamedTuple):
    title: str
    shown: Callable[[float], str]
    lines: Sequence[tuple[str, str]]
    top: float | None = None


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


def charts(series: Mapping[str, Series]) -> Html:
    """Return a chart of each of *series* that has something to show."""
    drawn = [figure for chart in _CHARTS if (figure := _chart(chart, series))]
    return element("div", *drawn, class_="charts") if drawn else NOTHING


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


def _chart(chart: _Chart, series: Mapping[str, Series]) -> Html:
    found = [
        (name, title, line)
        for name, title in chart.lines
        if (line := series.get(name)) is not None
        and len(line.times) == len(line.values) >= _FEWEST
        and (any(line.values) or name == "errors")
    ]
    if not any(any(line.values) for _, _, line in found):
        return NOTHING
    start = min(line.times[0] for _, _, line in found)
    end = max(line.times[-1] for _, _, line in found)
    top = chart.top or max(max(line.values) for _, _, line in found)
    lines = [
        element("polyline", points=points, class_=_tone(name))
        for name, _, line in found
        for points in _points(line, (start, end), top)
    ]
    grid = [
        element("line", x1=0, x2=_WIDTH, y1=y, y2=y, class_="grid")
        for y in (0.5, _HEIGHT / 2, _HEIGHT - 0.5)
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
    return element(
        "figure",
        element(
            "figcaption", element("span", text(chart.title)), _legend(found, chart)
        ),
        element(
            "div",
            element("span", text(chart.shown(top)), class_="top"),
            drawing,
            class_="plot",
        ),
        element(
            "div",
            element("span", text(moment(start, "%H:%M:%S"))),
            element("span", text(moment(end, "%H:%M:%S"))),
            class_="ends",
        ),
        class_="card chart",
    )


def _legend(found: Sequence[tuple[str, str, Series]], chart: _Chart) -> Html:
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


def _points(line: Series, ends: tuple[float, float], top: float) -> Iterator[str]:
    """Yield the points of each line without a gap."""
    start, span = ends[0], max(ends[1] - ends[0], 1e-9)
    steps = sorted(b - a for a, b in zip(line.times, line.times[1:], strict=False))
    gap = _GAP * steps[len(steps) // 2]
    points: list[str] = []
    last = start
    for time, value in zip(line.times, line.values, strict=True):
        if points and time - last > gap:
            yield " ".join(points)
            points = []
        x = _WIDTH * (time - start) / span
        y = _HEIGHT * (1 - min(value / top, 1.0))
        points.append(f"{x:.1f},{y:.1f}")
        last = time
    yield " ".join(points)


def _tone(name: str) -> str:
    return "warns" if name in _WARNS else "plain"
