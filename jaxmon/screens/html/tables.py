"""Sections of the text report as tables of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from jaxmon.facts.events import Recompile
from jaxmon.facts.functions import Function
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import Column, ago, counted, duration
from jaxmon.screens.html.elements import NOTHING, Html, element, folded, joined, text
from jaxmon.screens.section import Section


_FEW = 12
_AS_IT_IS = ("FLOP", "P50", "P99")


def table(
    section: Section,
    *,
    about: str = "",
    before: Html = NOTHING,
    marks: Sequence[Html] = (),
) -> Html:
    """
    Return *section*, nothing if it is empty.

    Args:
        section: its first column, or else the one that takes the remaining width, says
            what a row is about.
        about: what its numbers are about.
        before: what is above the table.
        marks: what is before the first cell of each row.
    """
    if not section:
        return NOTHING
    shown = section.about.removeprefix(":").strip().removeprefix("(").removesuffix(")")
    title = element("h2", text(capitalized(section.title)))
    note = ". ".join(filter(None, (capitalized(shown, keep=True), about)))
    head = element(
        "div", title, element("span", text(note)) if note else NOTHING, class_="head"
    )
    below = [element("p", text(one)) for one in section.below]
    parts = joined(before, _rows(section, marks), *below)
    card = element("div", parts, class_="card") if parts else NOTHING
    return element("section", head, card)


def capitalized(words: str, *, keep: bool = False) -> str:
    """Return a title in capitals as on a page; *keep* all but its first letter."""
    if keep or words in _AS_IT_IS:
        return words[:1].upper() + words[1:]
    return words[:1] + words[1:].lower()


def _rows(section: Section, marks: Sequence[Html]) -> Html:
    if not section.rows:
        return NOTHING
    order = _order(section.columns)
    heads = [_heading(section.columns[index]) for index in order]
    head = element("thead", element("tr", *heads))
    rows = list(_body(section, order, marks))

    def part(some: Sequence[Html]) -> Html:
        return element("table", head, element("tbody", joined(*some)))

    few = _FEW if len(rows) > _FEW + 1 else len(rows)
    return folded(part(rows[:few]), part(rows[few:]), len(rows) - few)


def _body(
    section: Section, order: Sequence[int], marks: Sequence[Html]
) -> Iterator[Html]:
    (first, *rest), name = order, ""
    for number, row in enumerate(section.rows):
        note = section.notes[number] if number < len(section.notes) else ""
        mark = marks[number] if number < len(marks) else NOTHING
        small = element("small", text(note)) if note else NOTHING
        # A route is named once.
        name = row[first] or name
        cells = [element("th", mark, text(name), small, scope="row")]
        cells += [_cell(section.columns[index], row[index]) for index in rest]
        yield element("tr", *cells)


def _order(columns: Sequence[Column]) -> list[int]:
    """Return which columns are shown, and in which order."""
    shown = [index for index, one in enumerate(columns) if one.heading]
    if columns[shown[0]].right:
        name = next(index for index in shown if not columns[index].size)
        shown = [name, *(index for index in shown if index != name)]
    return shown


def _heading(column: Column) -> Html:
    title = text(capitalized(column.heading))
    return element("th", title, scope="col", class_=_side(column))


def _cell(column: Column, cell: str) -> Html:
    label = capitalized(column.heading)
    return element("td", text(cell), class_=_side(column), data_label=label)


def _side(column: Column) -> str:
    return "" if column.right else "text"


_MOST_FUNCTIONS, _FEW_CAUSES = 30, 5
_MOST = 5


def recompiles(snapshot: Snapshot) -> Html:
    """Return the functions that were recompiled, those that took longest first."""
    found = [one for one in snapshot.functions if one.recompiles and not one.internal]
    if not found:
        return NOTHING
    items = [
        _function(one, [r for r in snapshot.recompiles if r.function == one.name], now)
        for now in (snapshot.process.now,)
        for one in found[:_MOST_FUNCTIONS]
    ]
    few = _FEW_CAUSES if len(items) > _FEW_CAUSES + 1 else len(items)
    shown = element("ol", *items[:few], class_="findings")
    rest = element("ol", *items[few:], class_="findings")
    title = element("h2", text("Recompiles"))
    note = element("span", text("What differed from the calls before, latest first"))
    return element(
        "section",
        element("div", title, note, class_="head"),
        element("div", folded(shown, rest, len(items) - few), class_="card"),
    )


def _function(one: Function, known: Sequence[Recompile], now: float) -> Html:
    causes = sorted(one.recompiles.items(), key=lambda item: (-item[1], item[0]))
    said = ", ".join(f"{cause.replace('_', ' ')} {n:,}" for cause, n in causes)
    newest = sorted(known, key=lambda found: -found.time)
    groups = [list(g) for _, g in groupby(newest, key=lambda r: (r.cause, r.texts))]
    shown = [_group(group, now) for group in groups[:_MOST]]
    left = len(groups) - _MOST
    if left > 0:
        shown.append(element("small", text(f"and {counted(left, 'earlier one')}")))
    return element(
        "li",
        element("p", element("strong", text(one.name)), text(f": {said}")),
        element("small", text(one.place)) if one.place else NOTHING,
        *shown,
    )


def _group(same: Sequence[Recompile], now: float) -> Html:
    """Return recompiles that differ in nothing but their time."""
    latest = same[0]
    facts = [f"{len(same)} identical"] if len(same) > 1 else []
    if latest.seconds is not None:
        facts.append(duration(latest.seconds))
    facts.append(ago(now - latest.time))
    if latest.place:
        facts.append(f"called at {latest.place}")
    reasons = list(latest.texts) or [latest.cause.replace("_", " ")]
    if latest.omitted:
        reasons.append(f"and {latest.omitted} more")
    lines = [element("code", text(one)) for one in reasons]
    return element("div", *lines, element("small", text(" · ".join(facts))))
