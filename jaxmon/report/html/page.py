"""The whole page of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from jaxmon.facts.process import Snapshot
from jaxmon.formats.layout import Column, counted
from jaxmon.report import marked, sections, tables
from jaxmon.report.goodput import goodput
from jaxmon.report.html.charts import bar, charts, small_bar
from jaxmon.report.html.elements import NOTHING, Html, element, joined, text
from jaxmon.report.html.head import answer, findings, header, numbers, title
from jaxmon.report.html.policy import BASE, source_hash
from jaxmon.report.html.recompiles import recompiles
from jaxmon.report.html.tables import table
from jaxmon.report.runs.model import Run
from jaxmon.report.section import Section
from jaxmon.report.time_table import time_parts, time_table
from jaxmon.report.utilization import flops


_MOST = 64
_STYLES = (BASE, Path(__file__).parent / "report.css")
_VERSION = Column("VERSION", right=False)


def page(run: Run) -> str:
    """
    Return the page of *run*: less than a megabyte, whatever the run did.

    It may load nothing, and contains no script. All text of the run is escaped.
    """
    style = _style()
    policy = (
        f"default-src 'none'; style-src {source_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = joined(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", text(title(run))),
        # Not escaped: it is ours, and its hash is that of its text.
        Html(f"<style>{style}</style>"),
    )
    body = joined(
        header(run),
        element("main", joined(*_main(run)), id="main"),
        _footer(run),
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n'
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _main(run: Run) -> Iterator[Html]:
    snapshot = run.snapshot
    yield answer(run)
    yield numbers(run)
    yield findings(run)
    yield _charts(snapshot)
    yield _time(snapshot)
    yield table(goodput(snapshot.run))
    yield table(marked.requests(snapshot, most=_MOST))
    yield table(marked.steps(snapshot, most=_MOST))
    yield table(marked.queues(snapshot, most=_MOST))
    yield table(
        sections.functions(snapshot, most=_MOST),
        about="A name is followed by the line that defines it",
    )
    yield recompiles(snapshot)
    yield table(tables.programs(snapshot, most=_MOST))
    yield table(flops(snapshot, most=_MOST))
    yield table(tables.cache(snapshot))
    yield table(tables.devices(snapshot, most=_MOST))
    yield _memory(snapshot)
    yield table(tables.transfers(snapshot, most=_MOST))
    yield table(tables.errors(snapshot))
    yield _versions("VERSIONS AND FLAGS", run.versions)
    yield _packages(run.packages)
    yield table(Section("NOTES", below=run.notes))


def _charts(snapshot: Snapshot) -> Html:
    drawn = charts(snapshot.charts)
    if not drawn:
        return NOTHING
    heading = element("h2", text("How it went"))
    note = element("span", text("Times are UTC, numbers are medians"))
    return element("section", element("div", heading, note, class_="head"), drawn)


def _time(snapshot: Snapshot) -> Html:
    section = time_table(snapshot, most=_MOST)
    if not section.rows:
        return NOTHING
    parts = time_parts(snapshot)[: len(section.rows)]
    label = ", ".join(f"{row[0]} {row[2]}" for row in section.rows)
    marks = [
        element("i", class_=f"swatch c{number}") for number in range(len(section.rows))
    ]
    drawn = element("div", bar(parts, label), class_="parts-of")
    return table(section, before=drawn, marks=marks)


def _memory(snapshot: Snapshot) -> Html:
    section = tables.memory_lines(snapshot, most=_MOST)
    most = max((one.bytes for one in snapshot.allocations.lines), default=0.0)
    marks = [
        small_bar(one.bytes / most) for one in snapshot.allocations.lines if one.bytes
    ]
    return table(section, marks=marks)


def _versions(name: str, known: Mapping[str, str]) -> Html:
    columns = (Column("NAME", right=False), _VERSION)
    return table(Section(name, columns=columns, rows=list(known.items())))


def _packages(known: Mapping[str, str]) -> Html:
    if not known:
        return NOTHING
    said = element("summary", text(counted(len(known), "installed package")))
    names = text(", ".join(f"{name} {version}" for name, version in known.items()))
    return element("details", said, element("p", names), class_="card")


def _footer(run: Run) -> Html:
    version = run.snapshot.process.jaxmon
    return element(
        "footer",
        element("span", text(f"Written by jaxmon {version}".strip())),
        element("span", text("The JSON file beside it has all numbers.")),
        element(
            "span",
            text("Two runs are compared by"),
            element("code", text(" jaxmon compare")),
        ),
    )


@cache
def _style() -> str:
    style = "\n".join(path.read_text("utf-8") for path in _STYLES)
    # A comment could not end the element, but need not be sent either.
    return re.sub(r"/\*.*?\*/\s*", "", style, flags=re.DOTALL)
