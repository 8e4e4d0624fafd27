"""The whole page of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jaxmon.facts.events import Recompile
from jaxmon.facts.functions import FunctionFact
from jaxmon.facts.process import Snapshot
from jaxmon.facts.status import FindingSummary, Reason
from jaxmon.host.formats import layout
from jaxmon.screens import tables
from jaxmon.screens import text as sections
from jaxmon.screens.html.charts import bar, charts, small_bar
from jaxmon.screens.html.elements import (
    BASE,
    NOTHING,
    Html,
    element,
    folded,
    joined,
    prose,
    source_hash,
    text,
)
from jaxmon.screens.programs import label
from jaxmon.screens.runs import Facts, Run, build, parse
from jaxmon.screens.section import Section, moment
from jaxmon.screens.tables import goodput
from jaxmon.screens.text import won_back
from jaxmon.screens.time_table import time_parts, time_table
from jaxmon.settings import RUNBOOKS


_FEW_ROWS = 12
_AS_IT_IS = ("FLOP", "XLA", "FLOP/S", "P50", "P99")
_MOST_FUNCTIONS, _FEW_CAUSES = 30, 5
_MOST_GROUPS = 5
_FEW = 10
_MOST = 64
_TAGS = {"failure": "Failure", "time": "Time", "hint": "Hint", "note": "Note"}
_STYLES = (BASE, Path(__file__).parent / "report.css")
_VERSIONS = (layout.Column("NAME", right=False), layout.Column("VERSION", right=False))
_STATES = {
    "running": ("", "still running"),
    "finished": ("good", "finished"),
    "crashed": ("bad", "crashed"),
}


def table(
    section: Section,
    *,
    about: str = "",
    before: Html = NOTHING,
    marks: Sequence[Html] = (),
) -> Html:
    """Return *section*; its numbers are *about* that, *marks* stand before rows."""
    if not section:
        return NOTHING
    shown = section.about.removeprefix(":").strip().removeprefix("(").removesuffix(")")
    note = ". ".join(filter(None, (_capitalized(shown, keep=True), about)))
    below = [element("p", text(line)) for line in section.below]
    parts = joined(before, _rows(section, marks), *below)
    card = element("div", parts, class_="card") if parts else NOTHING
    return titled(_capitalized(section.title), card, note=note)


def titled(title: str, *parts: Html, note: str = "", **attributes: str) -> Html:
    """Return a section with a *title*, and a *note* beside it."""
    about = element("span", text(note)) if note else NOTHING
    head = element("div", element("h2", text(title)), about, class_="head")
    return element("section", head, *parts, **attributes)


def _capitalized(words: str, *, keep: bool = False) -> str:
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

    return folded(rows, _FEW_ROWS, part)


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


def _order(columns: Sequence[layout.Column]) -> list[int]:
    shown = [index for index, column in enumerate(columns) if column.heading]
    if columns[shown[0]].right:
        name = next(index for index in shown if not columns[index].size)
        shown = [name, *(index for index in shown if index != name)]
    return shown


def _heading(column: layout.Column) -> Html:
    title = text(_capitalized(column.heading))
    return element("th", title, scope="col", class_=_side(column))


def _cell(column: layout.Column, cell: str) -> Html:
    label = _capitalized(column.heading)
    return element("td", text(cell), class_=_side(column), data_label=label)


def _side(column: layout.Column) -> str:
    return "" if column.right else "text"


def recompiles(snapshot: Snapshot) -> Html:
    """Return the functions that were recompiled, those that took longest first."""
    found = [function for function in snapshot.users if function.recompiles]
    if not found:
        return NOTHING
    items = [_recompiled(function, snapshot) for function in found[:_MOST_FUNCTIONS]]
    card = element("div", folded(items, _FEW_CAUSES, _list), class_="card")
    note = "What differed from the calls before, latest first"
    return titled("Recompiles", card, note=note)


def _recompiled(function: FunctionFact, snapshot: Snapshot) -> Html:
    causes = sorted(function.recompiles.items(), key=lambda item: (-item[1], item[0]))
    by_cause = ", ".join(f"{cause.replace('_', ' ')} {n:,}" for cause, n in causes)
    events = [event for event in snapshot.recompiles if event.function == function.name]
    groups = sections.alike(events, snapshot.process.now)
    shown = [_group(*group) for group in groups[:_MOST_GROUPS]]
    left = len(groups) - _MOST_GROUPS
    if left > 0:
        shown.append(
            element("small", text(f"and {layout.counted(left, 'earlier one')}"))
        )
    return element(
        "li",
        element("p", element("strong", text(function.name)), text(f": {by_cause}")),
        element("small", text(function.place)) if function.place else NOTHING,
        *shown,
    )


def _group(latest: Recompile, facts: Sequence[str]) -> Html:
    if latest.place:
        facts = [*facts, f"called at {latest.place}"]
    reasons = list(latest.texts) or [latest.cause.replace("_", " ")]
    if latest.omitted:
        reasons.append(f"and {latest.omitted} more")
    lines = [element("code", text(reason)) for reason in reasons]
    return element("div", *lines, element("small", text(" · ".join(facts))))


def header(run: Run) -> Html:
    """Return the line on the process."""
    process = run.snapshot.process
    tone, state = _STATES.get(run.state, ("", run.state))
    name = element("span", text(label(process.program) or f"pid {process.pid}"))
    heading = element("h1", text("jaxmon"), name)
    since, until = moment(process.started), moment(process.now)
    when = f"{since} to {until} UTC" if since else f"{until} UTC"
    facts = [
        f"pid {process.pid}" if process.pid is not None else "",
        f"worker {run.worker}" if run.worker else "",
        str(process.rank),
        run.host,
        when,
        f"observed for {layout.duration(process.observed_seconds)}",
    ]
    sentence = " · ".join(filter(None, facts))
    return element(
        "header",
        element(
            "div",
            heading,
            element("div", text(state), id="state", class_=f"dot {tone}"),
        ),
        element("p", text(sentence), class_="facts"),
    )


def answer(run: Run) -> Html:
    """Return whether users were all right."""
    found = run.answer
    reasons = found.reasons[1:] if found.reasons else ()
    more = [_reason(reason) for reason in reasons]
    because = found.reasons[0].because if found.reasons else ""
    asked = found.question
    if run.state != "running":
        verb, _, rest = asked.partition(" ")
        asked = f"{'Were' if verb == 'Are' else 'Was'} {rest}"
    return element(
        "section",
        element(
            "div",
            element("h2", text(asked)),
            element("p", text(found.text), id="answer-text"),
            element("p", text(because), class_="because") if because else NOTHING,
            element("ul", *more, id="answer-more") if more else NOTHING,
            element("p", text(found.advice), id="answer-advice")
            if found.advice
            else NOTHING,
        ),
        id="answer",
        class_=found.state,
    )


def _reason(reason: Reason) -> Html:
    what = element("span", text(reason.text))
    because = element("span", text(f" {reason.because}"), class_="because")
    return element("li", what, because if reason.because else NOTHING)


def numbers(run: Run) -> Html:
    """Return the numbers that say most."""
    shown = [
        element("div", element("dt", text(name)), element("dd", text(value)))
        for name, value in _numbers(run)
    ]
    return element("dl", *shown, aria_label="Since the start")


def findings(run: Run) -> Html:
    """Return what to change, the most urgent first."""
    observed = run.snapshot.process.observed_seconds
    items = [_finding(finding, observed) for finding in run.findings]
    quiet = element("p", text(run.quiet), class_="quiet") if run.quiet else NOTHING
    card = element("div", quiet, folded(items, _FEW, _list), class_="card")
    return titled("Findings", card, id="findings")


def _list(items: Sequence[Html]) -> Html:
    return element("ol", *items, class_="findings") if items else NOTHING


def _finding(finding: FindingSummary, observed: float) -> Html:
    tag = element(
        "span", text(_TAGS.get(finding.urgency, "")), class_=f"tag {finding.urgency}"
    )
    evidence = [element("code", text(line)) for line in finding.evidence]
    facts = [
        text(line)
        for line in won_back(finding.urgency, finding.seconds, observed, finding.panel)
    ]
    if finding.runbook:
        address = f"{RUNBOOKS}{finding.runbook}.md"
        facts.append(
            element("a", text(finding.runbook), href=address, rel="noreferrer")
        )
    small = Html(" · ".join(facts))
    return element(
        "li",
        element("p", tag, element("strong", text(finding.verdict))),
        *evidence,
        element("p", prose(f"Advice: {finding.action}")) if finding.action else NOTHING,
        element("small", small) if facts else NOTHING,
    )


def _numbers(run: Run) -> Iterable[tuple[str, str]]:
    snapshot = run.snapshot
    observed = snapshot.process.observed_seconds
    finished = [some for route in snapshot.requests for some in route.finished]
    count = sum(some.count for some in finished)
    failed = sum(some.count for some in finished if some.outcome == "error")
    if count:
        yield "requests", _count(count)
        yield "of them failed", layout.share(failed, count)
    if steps := sum(loop.steps for loop in snapshot.steps):
        yield "steps", _count(steps)
    took = snapshot.compile_time  # of all threads
    part = layout.share(took, observed) if took <= observed else layout.UNKNOWN
    yield "of the time compiling", part
    users = snapshot.users
    yield "recompiles", _count(sum(sum(user.recompiles.values()) for user in users))
    if not count:
        yield "errors", _count(sum(sum(user.errors.values()) for user in users))
    peaks = [device.peak for device in snapshot.memory.devices if device.peak]
    if peaks:
        yield "peak of a device", layout.size(max(peaks))
    else:
        peak = snapshot.usual.peak_resident_bytes
        yield "peak on the host", layout.UNKNOWN if peak is None else layout.size(peak)
    if not (count and steps):
        called = [of for of in snapshot.functions if of.hits is not None]
        calls = sum(of.calls or 0 for of in called)
        hits = sum(of.hits or 0 for of in called)
        yield "cache hit rate", layout.share(hits, calls) if calls else layout.UNKNOWN


def _count(number: int) -> str:
    many = 100_000
    return layout.amount(number) if number >= many else f"{number:,}"


def page(run: Run) -> str:
    """Return the page of *run*, less than a megabyte, which loads nothing; escaped."""
    name = label(run.snapshot.process.program)
    body = joined(
        header(run), element("main", joined(*_main(run)), id="main"), _footer(run)
    )
    return whole(f"{name or 'a process'} · jaxmon", body)


def whole(title: str, body: Html, *styles: Path) -> str:
    """Return a page with this *body*, which loads nothing; *styles* are added."""
    style = _style(*_STYLES, *styles)
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
        element("title", text(title)),
        # Not escaped: it is ours, and its hash is that of its text.
        Html(f"<style>{style}</style>"),
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
    yield table(tables.requests(snapshot, most=_MOST))
    yield table(tables.steps(snapshot, most=_MOST))
    yield table(tables.queues(snapshot, most=_MOST))
    yield table(
        sections.functions(snapshot, most=_MOST),
        about="A name is followed by the line that defines it",
    )
    yield recompiles(snapshot)
    yield table(tables.programs(snapshot, most=_MOST))
    yield table(tables.flops(snapshot, most=_MOST))
    yield table(tables.cache(snapshot))
    yield table(tables.devices(snapshot, most=_MOST))
    yield _memory(snapshot)
    yield table(tables.transfers(snapshot, most=_MOST))
    yield table(tables.errors(snapshot))
    yield table(
        Section("VERSIONS AND FLAGS", columns=_VERSIONS, rows=[*run.versions.items()])
    )
    yield _packages(run.packages)
    yield table(Section("NOTES", below=run.notes))


def _charts(snapshot: Snapshot) -> Html:
    slower = [found for found in snapshot.slower if found.against == "earlier"]
    drawn = charts(snapshot.charts, [found.since for found in slower])
    if not drawn:
        return NOTHING
    note = "Times are UTC, numbers are medians"
    if names := ", ".join(found.name for found in slower):
        note += f"; dashed: since when {names} is slower"
    return titled("How it went", drawn, note=note)


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
    most = max((line.bytes for line in snapshot.allocations.lines), default=0.0)
    marks = [
        small_bar(line.bytes / most)
        for line in snapshot.allocations.lines
        if line.bytes
    ]
    return table(section, marks=marks)


def _packages(packages: Mapping[str, str]) -> Html:
    if not packages:
        return NOTHING
    title = element("summary", text(layout.counted(len(packages), "installed package")))
    names = text(", ".join(f"{name} {version}" for name, version in packages.items()))
    return element("details", title, element("p", names), class_="card")


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
def _style(*files: Path) -> str:
    style = "\n".join(path.read_text("utf-8") for path in files)
    # A comment could not end the element, but need not be sent either.
    return re.sub(r"/\*.*?\*/\s*", "", style, flags=re.DOTALL)


class Files(NamedTuple):
    """A summary in JSON, and the page that shows it."""

    summary: str
    page: str


def files_of(facts: Facts) -> Files:
    """Return the files of a report of *facts*; takes some ten milliseconds."""
    summary = build(facts)
    return Files(summary, page(parse(summary)))
