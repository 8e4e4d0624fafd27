"""
Compiled programs as one page, which loads nothing: flame charts by line of source,
callers above what they call, and a program with the one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from jaxmon.host.formats.layout import share
from jaxmon.preflight.compiled import view
from jaxmon.preflight.compiled.costs import Calls, LinePlace, ProgramCosts
from jaxmon.screens.html.elements import NOTHING, Html, element, joined, text
from jaxmon.screens.html.page import table, titled, whole
from jaxmon.screens.programs import label
from jaxmon.screens.section import moment


_STYLE = Path(__file__).parent / "page.css"
# Columns of text: tables here have all columns.
_WIDTH = 400
_ROW, _COLOURS = 22, 8
_LEAST, _DEEPEST = 0.003, 40


@dataclass(slots=True)
class _Node:
    """A line with what it calls; *count* is that of both."""

    count: int = 0
    called: dict[LinePlace, _Node] = field(default_factory=dict)


def render(found: view.ProcessPrograms, program: str) -> str:
    """Return the page of the process that runs *program*; takes some milliseconds."""
    latest, before = found.latest, found.before
    name = latest.program.function
    head = element("h1", text(name), element("span", text(label(program))))
    parts = [
        table(view.programs_table(found, _WIDTH)),
        _charts("Equations by line", "as JAX traced them", latest, before, traced=True),
        _charts("Instructions by line", "of XLA", latest, before, traced=False),
        table(view.growth_table(found)),
        table(view.lines_table(latest, _WIDTH)),
        table(view.collectives_table(latest)),
    ]
    body = joined(
        element("header", element("div", head)),
        element("main", joined(*parts), id="main"),
        element("footer", element("span", text("Written by jaxmon compiles"))),
    )
    return whole(f"{name} · jaxmon", body, _STYLE)


def _charts(
    title: str,
    about: str,
    latest: ProgramCosts,
    before: ProgramCosts | None,
    *,
    traced: bool,
) -> Html:
    """Return a flame chart of a program, above that of the one *before*, to scale."""
    found = [
        (stacks, costs)
        for costs in (latest, before)
        if costs is not None and (stacks := costs.traced if traced else costs.made)
    ]
    if not found:
        return NOTHING
    most = max(stacks.total() for stacks, _ in found) or 1
    drawn = [
        _flame(stacks, most, costs, f"{title}, {_when(costs)}")
        for stacks, costs in found
    ]
    note = f"{about}; callers above what they call, as wide as the number of both"
    return titled(title, element("div", *drawn, class_="flames"), note=note)


def _when(costs: ProgramCosts) -> str:
    finished = moment(costs.program.finished)
    return f"compiled {finished} UTC" if finished else "compiled earlier"


def _flame(stacks: Counter[Calls], most: int, costs: ProgramCosts, title: str) -> Html:
    root = _Node()
    for calls, count in stacks.items():
        node = root
        node.count += count
        for place in calls[:_DEEPEST]:
            node = node.called.setdefault(place, _Node())
            node.count += count
    boxes = list(_boxes(root, costs, 0.0, 0, most))
    rows = 1 + max((row for row, _ in boxes), default=0)
    caption = element("figcaption", text(f"{_when(costs)}: {root.count:,}"))
    drawing = element(
        "svg",
        *(box for _, box in boxes),
        height=rows * _ROW,
        role="img",
        aria_label=title,
    )
    return element("figure", caption, drawing, class_="card flame")


def _boxes(
    node: _Node, costs: ProgramCosts, left: float, row: int, most: int
) -> Iterator[tuple[int, Html]]:
    """Yield row and box of all that *node* calls, *left* of it at a part of *most*."""
    for place, inner in sorted(node.called.items()):
        width = inner.count / most
        if width >= _LEAST:
            yield row, _box(place, inner.count, costs, (left, width, row), most)
            yield from _boxes(inner, costs, left, row + 1, most)
        left += width


def _box(
    place: LinePlace,
    count: int,
    costs: ProgramCosts,
    at: tuple[float, float, int],
    most: int,
) -> Html:
    left, width, row = at
    function = costs.lines[place].function if place in costs.lines else ""
    part = share(count, most)
    tone = crc32(f"{place.file}:{function}".encode()) % _COLOURS
    short = str(place).rpartition("/")[2]
    return element(
        "svg",
        element("title", text(f"{place} {function}: {count:,}, {part}")),
        element("rect", width="100%", height="100%", class_=f"c{tone}"),
        element("text", text(f"{short} {function} {part}"), x=5, y=15),
        x=f"{100 * left:.3f}%",
        y=row * _ROW,
        width=f"{100 * width:.3f}%",
        height=_ROW - 1,
    )
