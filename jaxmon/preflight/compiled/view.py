"""
Compiled programs by what they cost, and the lines of one: as text, as JSON, and as a
page, which loads nothing: flame charts by line of source, callers above what they call,
and a program with the one before.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

from jaxmon.facts.programs import CALLS, CompiledProgram
from jaxmon.facts.record import encoded
from jaxmon.host.formats.layout import (
    UNKNOWN,
    Column,
    ago,
    amount,
    counted,
    duration,
    ending,
    share,
    size,
)
from jaxmon.preflight.compiled.costs import Calls, LineCost, LinePlace, ProgramCosts
from jaxmon.preflight.compiled.listing import Listing
from jaxmon.screens.html.elements import NOTHING, Html, element, joined
from jaxmon.screens.html.elements import text as escaped
from jaxmon.screens.html.page import table, titled
from jaxmon.screens.html.page import whole as whole_page
from jaxmon.screens.programs import label
from jaxmon.screens.section import (
    Fields,
    Section,
    fitting,
    moment,
    more,
    number,
    tabulated,
    whole,
    words,
)


_MOST_ROWS, _MOST_PROGRAMS = 20, 12
# What narrow terminals have no room for, in this order.
_LESS_OF_PROGRAMS = ("AGO", "BYTES", "FLOP", "TEMP.", "LOADED")
_LESS_OF_LINES = ("COPIES", "IN", "MOSTLY", "WRITES", "HOLDS")
_ROOM, _WORTH_SAVING = 24, 1 << 20

_Line: TypeAlias = tuple[LinePlace, LineCost]


@dataclass(frozen=True, slots=True)
class ProcessPrograms:
    """
    The programs of a process, the costliest first, those *omitted* by it, and the costs
    of one: the *latest* of its function, and the one *before* that, if there is one.
    """

    programs: Sequence[CompiledProgram]
    latest: ProgramCosts
    before: ProgramCosts | None = None
    omitted: int = 0

    @property
    def changed(self) -> list[tuple[LinePlace, LineCost, LineCost]]:
        """The lines that differ between the two, now and before, the grown first."""
        if self.before is None:
            return []
        now, before = self.latest.lines, self.before.lines
        found = [
            (place, now.get(place, LineCost()), before.get(place, LineCost()))
            for place in now.keys() | before.keys()
        ]
        found = [line for line in found if any(_more(*line))]
        return sorted(
            found, key=lambda line: (*(-more for more in _more(*line)), line[0])
        )


def _more(_: LinePlace, now: LineCost, before: LineCost) -> tuple[int, int]:
    return (
        now.equations.total() - before.equations.total(),
        now.instructions.total() - before.instructions.total(),
    )


def by_cost(programs: Sequence[CompiledProgram]) -> list[CompiledProgram]:
    """Return *programs*, the longest to compile first."""
    return sorted(programs, key=lambda of: (-(of.seconds or 0.0), -(of.equations or 0)))


def _lines_of(costs: ProgramCosts) -> list[_Line]:
    def part(line: LineCost) -> float:
        return max(
            line.equations.total() / max(costs.equations, 1),
            line.instructions.total() / max(costs.instructions, 1),
        )

    found = [item for item in costs.lines.items() if item[1]]
    return sorted(found, key=lambda item: (-part(item[1]), item[0]))


def _programs_table(found: ProcessPrograms, width: int) -> Section:
    now = time.time()
    fields: Fields[CompiledProgram] = [
        words("FUNCTION", 0, lambda of: of.function, ending),
        words("AGO", 15, lambda of: ago(now - of.finished) if of.finished else UNKNOWN),
        number("TRACE", 11, lambda of: of.trace_seconds, duration),
        number("LOWER", 11, lambda of: of.lower_seconds, duration),
        number("XLA", 11, lambda of: None if of.loaded else of.xla_seconds, duration),
        number(
            "LOADED", 11, lambda of: of.xla_seconds if of.loaded else None, duration
        ),
        number("EQUATIONS", 11, lambda of: of.equations, whole),
        number("INSTR.", 9, lambda of: of.analysis.instructions, whole),
        number("FLOP", 9, lambda of: of.analysis.flops, amount),
        number("BYTES", 10, lambda of: of.analysis.accessed_bytes, size),
        number("TEMP.", 10, lambda of: of.analysis.temporary_bytes, size),
    ]
    if not any(of.loaded for of in found.programs):
        fields = [field for field in fields if field[0].heading != "LOADED"]
    return tabulated(
        "PROGRAMS",
        fitting(fields, _LESS_OF_PROGRAMS, width - _ROOM),
        found.programs[:_MOST_PROGRAMS],
        about=": by the time of their compiles; FLOP and BYTES have each loop once",
        below=more(len(found.programs[_MOST_PROGRAMS:]) + found.omitted),
    )


def _lines_table(costs: ProgramCosts, width: int) -> Section:
    found, made = _lines_of(costs), costs.instructions
    fields: Fields[_Line] = [
        words("LINE", 0, lambda item: str(item[0]), ending),
        words("IN", 18, lambda item: item[1].function, ending),
        words("MOSTLY", 19, lambda item: _mostly(item[1])),
        number("EQUATIONS", 11, lambda item: item[1].equations.total(), whole),
        _part("equations", costs.equations),
        number("INSTR.", 9, lambda item: item[1].instructions.total(), whole),
        _part("instructions", made),
        number("FLOP", 9, lambda item: item[1].flops or None, amount),
        number("WRITES", 10, lambda item: item[1].written_bytes or None, size),
        number("COPIES", 10, lambda item: item[1].moved_bytes or None, size),
        number("HOLDS", 10, lambda item: item[1].held_bytes or None, size),
        number("EXCHANGES", 11, lambda item: item[1].collective_bytes or None, size),
    ]
    if not any(line.collective_bytes for _, line in found):
        fields = fields[:-1]
    about = [counted(costs.equations, "equation")] if costs.equations else []
    about += [counted(made, "instruction")] if made else []
    return tabulated(
        f"LINES of {costs.program.function}",
        fitting(fields if made else fields[:5], _LESS_OF_LINES, width - _ROOM),
        found[:_MOST_ROWS],
        about=f": {', '.join(about)}",
        below=[*more(len(found) - _MOST_ROWS), *_sentences(costs)],
    )


def collectives_table(costs: ProgramCosts) -> Section:
    """Return what devices exchange for which lines, most bytes first, and why."""
    found = sorted(
        (
            (place, of)
            for place, line in costs.lines.items()
            for of in line.collectives.values()
        ),
        key=lambda item: -item[1].bytes,
    )
    because = {True: "partitioner", False: "program", None: UNKNOWN}
    fields: Fields[tuple[LinePlace, Any]] = [
        words("LINE", 0, lambda item: str(item[0]), ending),
        words("COLLECTIVE", 20, lambda item: item[1].kind),
        words("ASKED BY", 13, lambda item: because[item[1].inserted]),
        number("NUMBER", 9, lambda item: item[1].number, whole),
        number("BYTES", 11, lambda item: item[1].bytes, size),
    ]
    return tabulated(
        "COLLECTIVES",
        fields,
        found[:_MOST_ROWS],
        about=": per call; bytes of results on one device",
        below=more(len(found) - _MOST_ROWS),
    )


def _growth_table(found: ProcessPrograms) -> Section:
    if found.before is None:
        return Section("")
    changes = found.changed
    fields: Fields[tuple[LinePlace, LineCost, LineCost]] = [
        words("LINE", 0, lambda of: str(of[0]), ending),
        number("EQUATIONS", 11, lambda of: of[1].equations.total(), whole),
        number("BEFORE", 9, lambda of: of[2].equations.total(), whole),
        number("MORE", 9, lambda of: _more(*of)[0], _signed),
        number("INSTR.", 9, lambda of: of[1].instructions.total(), whole),
        number("BEFORE", 9, lambda of: of[2].instructions.total(), whole),
        number("MORE", 9, lambda of: _more(*of)[1], _signed),
    ]
    both = found.before.made and found.latest.made
    none = ["No line has more equations or instructions, or fewer."]
    return tabulated(
        "SINCE THE PROGRAM BEFORE",
        fields if both else fields[:4],
        changes[:_MOST_ROWS],
        below=more(len(changes) - _MOST_ROWS) if changes else none,
    )


def text(found: ProcessPrograms, width: int) -> Iterator[str]:
    """Yield the lines of a report."""
    yield from _programs_table(found, width).lines(width)
    latest = found.latest
    tables = _lines_table(latest, width), collectives_table(latest)
    for section in (*tables, _growth_table(found)):
        if lines := section.lines(width):
            yield from ("", *lines)


def document(found: ProcessPrograms, listing: Listing | None = None) -> dict[str, Any]:
    """Return everything that is known, and a *listing* as asked for."""
    listed = [
        {**place._asdict(), "text": row}
        for place, row in (() if listing is None else listing.rows)
    ]
    return {
        **({} if listing is None else {listing.kind: listed, "rest": listing.rest}),
        "programs": [encoded(program) for program in found.programs],
        "omitted": found.omitted,
        "latest": _as_json(found.latest),
        "before": None if found.before is None else _as_json(found.before),
        "changed": [
            {**place._asdict(), "equations": equations, "instructions": instructions}
            for place, *costs in found.changed
            for equations, instructions in [_more(place, *costs)]
        ],
    }


def _as_json(costs: ProgramCosts) -> dict[str, Any]:
    return {
        "function": costs.program.function,
        "finished": costs.program.finished,
        "equations": costs.program.equations,
        "instructions": costs.instructions or None,
        "notes": costs.notes,
        "lines": [
            {
                **place._asdict(),
                **{name: getattr(line, name) for name in line.__slots__},
                "collectives": [*map(asdict, line.collectives.values())],
            }
            for place, line in _lines_of(costs)
        ],
    }


def _part(name: str, total: float) -> Any:
    return Column("OF ALL", 8), lambda item: share(
        getattr(item[1], name).total(), total
    )


def _mostly(line: LineCost) -> str:
    counts = line.equations or line.instructions
    names = [name for name, _ in counts.most_common()]
    return next((of for of in names if of not in CALLS), next(iter(names), UNKNOWN))


def _signed(value: float) -> str:
    return f"{value:+,.0f}"


def _sentences(costs: ProgramCosts) -> Iterator[str]:
    if loop := costs.program.unrolled:
        times = f"at least {loop.times:,} times"  # it is not looked for everywhere
        yield f"Python unrolled a loop: {loop.inner or loop.where} is there {times}."
    if constants := costs.program.captured:
        where = f", first used at {constants.where}" if constants.where else ""
        kinds = f"{constants.largest} above all{where}"
        yield f"{size(constants.bytes)} of arrays from outside are constants, {kinds}."
    temporary = costs.program.analysis.temporary_bytes or 0.0
    saved = sum(line.saved_bytes for line in costs.lines.values())
    if saved >= max(temporary / 2, _WORTH_SAVING):
        yield (
            f"Of {size(temporary)} that it holds for a time, up to {size(saved)} are "
            "results of its forward pass that its backward pass reads: jax.checkpoint "
            "has these computed again instead."
        )
    yield from costs.notes


_LISTINGS = {"jaxpr": "As JAX traced it", "hlo": "As XLA compiled it"}
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


def render(found: ProcessPrograms, program: str, listing: Listing | None = None) -> str:
    """Return the page of the process that runs *program*; takes some milliseconds."""
    latest, before = found.latest, found.before
    name = latest.program.function
    head = element("h1", escaped(name), element("span", escaped(label(program))))
    parts = [
        table(_programs_table(found, _WIDTH)),
        _charts("Equations by line", "as JAX traced them", latest, before, traced=True),
        _charts("Instructions by line", "of XLA", latest, before, traced=False),
        table(_growth_table(found)),
        table(_lines_table(latest, _WIDTH)),
        table(collectives_table(latest)),
    ]
    if listing is not None:
        rows = escaped("\n".join(listing.lines()))
        about = "the line of source before each row"
        text_of = element("pre", rows, class_="card listing", tabindex=0)
        parts.append(titled(_LISTINGS[listing.kind], text_of, note=about))
    body = joined(
        element("header", element("div", head)),
        element("main", joined(*parts), id="main"),
        element("footer", element("span", escaped("Written by jaxmon compiles"))),
    )
    return whole_page(f"{name} · jaxmon", body, _STYLE)


def _charts(
    title: str,
    about: str,
    latest: ProgramCosts,
    before: ProgramCosts | None,
    *,
    traced: bool,
) -> Html:
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
    caption = element("figcaption", escaped(f"{_when(costs)}: {root.count:,}"))
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
        element("title", escaped(f"{place} {function}: {count:,}, {part}")),
        element("rect", width="100%", height="100%", class_=f"c{tone}"),
        element("text", escaped(f"{short} {function} {part}"), x=5, y=15),
        x=f"{100 * left:.3f}%",
        y=row * _ROW,
        width=f"{100 * width:.3f}%",
        height=_ROW - 1,
    )
