"""The whole page of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jaxmon.facts.process import Snapshot
from jaxmon.facts.status import FindingSummary, Reason
from jaxmon.host.formats.layout import (
    UNKNOWN,
    Column,
    amount,
    counted,
    duration,
    share,
    size,
)
from jaxmon.screens import marked, sections, tables
from jaxmon.screens.goodput import goodput
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
from jaxmon.screens.html.tables import recompiles, table
from jaxmon.screens.programs import label
from jaxmon.screens.runs.summary import Facts, Run, build, parse
from jaxmon.screens.section import Section
from jaxmon.screens.sections import won_back
from jaxmon.screens.time_table import time_parts, time_table
from jaxmon.screens.utilization import flops
from jaxmon.settings import RUNBOOKS


_STATES = {
    "running": ("", "still running"),
    "finished": ("good", "finished"),
    "crashed": ("bad", "crashed"),
}
_FEW = 10
_TAGS = {"failure": "Failure", "time": "Time", "hint": "Hint", "note": "Note"}


def title(run: Run) -> str:
    """Return the title of the page."""
    return f"{label(run.snapshot.process.program) or 'a process'} · jaxmon"


def header(run: Run) -> Html:
    """Return the line on the process."""
    process = run.snapshot.process
    tone, state = _STATES.get(run.state, ("", run.state))
    name = element("span", text(label(process.program) or f"pid {process.pid}"))
    heading = element("h1", text("jaxmon"), name)
    since, until = _moment(process.started), _moment(process.now)
    when = f"{since} to {until} UTC" if since else f"{until} UTC"
    facts = [
        f"pid {process.pid}" if process.pid is not None else "",
        f"worker {run.worker}" if run.worker else "",
        run.host,
        when,
        f"observed for {duration(process.observed_seconds)}",
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
    more = [_reason(one) for one in reasons]
    because = found.reasons[0].because if found.reasons else ""
    asked = (
        "Are users all right?" if run.state == "running" else ("Were users all right?")
    )
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


def _reason(one: Reason) -> Html:
    said = element("span", text(one.text[:1].upper() + one.text[1:]))
    because = element("span", text(f" {one.because}"), class_="because")
    return element("li", said, because if one.because else NOTHING)


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
    items = [_finding(one, observed) for one in run.findings]
    few = _FEW if len(items) > _FEW + 1 else len(items)
    quiet = element("p", text(run.quiet), class_="quiet") if run.quiet else NOTHING
    listed = folded(_list(items[:few]), _list(items[few:]), len(items) - few)
    return element(
        "section",
        element("div", element("h2", text("Findings")), class_="head"),
        element("div", quiet, listed, class_="card"),
        id="findings",
    )


def _list(items: Sequence[Html]) -> Html:
    return element("ol", *items, class_="findings") if items else NOTHING


def _finding(one: FindingSummary, observed: float) -> Html:
    tag = element("span", text(_TAGS.get(one.urgency, "")), class_=f"tag {one.urgency}")
    evidence = [element("code", text(line)) for line in one.evidence]
    said = [
        text(line) for line in won_back(one.urgency, one.seconds, observed, one.panel)
    ]
    if one.runbook:
        address = f"{RUNBOOKS}{one.runbook}.md"
        said.append(element("a", text(one.runbook), href=address, rel="noreferrer"))
    small = Html(" · ".join(said))
    return element(
        "li",
        element("p", tag, element("strong", text(one.verdict))),
        *evidence,
        element("p", prose(f"Advice: {one.action}")) if one.action else NOTHING,
        element("small", small) if said else NOTHING,
    )


def _numbers(run: Run) -> Iterable[tuple[str, str]]:
    snapshot = run.snapshot
    observed = snapshot.process.observed_seconds
    finished = [one for route in snapshot.requests for one in route.finished]
    count = sum(one.count for one in finished)
    failed = sum(one.count for one in finished if one.outcome == "error")
    if count:
        yield "requests", _count(count)
        yield "of them failed", share(failed, count)
    if steps := sum(loop.steps for loop in snapshot.steps):
        yield "steps", _count(steps)
    took = snapshot.compile_time  # of all threads
    part = share(took, observed) if took <= observed else UNKNOWN
    yield "of the time compiling", part
    users = [one for one in snapshot.functions if not one.internal]
    yield "recompiles", _count(sum(sum(one.recompiles.values()) for one in users))
    if not count:
        yield "errors", _count(sum(sum(one.errors.values()) for one in users))
    peaks = [one.peak for one in snapshot.memory.devices if one.peak]
    if peaks:
        yield "peak of a device", size(max(peaks))
    else:
        peak = snapshot.usual.peak_resident_bytes
        yield "peak on the host", UNKNOWN if peak is None else size(peak)
    if not (count and steps):
        yield "cache hit rate", _hit_rate(run)


def _hit_rate(run: Run) -> str:
    known = [one for one in run.snapshot.functions if one.hits is not None]
    calls = sum(one.calls or 0 for one in known)
    hits = sum(one.hits or 0 for one in known)
    return share(hits, calls) if calls else UNKNOWN


def _count(number: int) -> str:
    many = 100_000
    return amount(number) if number >= many else f"{number:,}"


def _moment(time: float) -> str:
    if not time:
        return ""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""


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


class Files(NamedTuple):
    """A summary in JSON, and the page that shows it."""

    summary: str
    page: str


def files_of(facts: Facts) -> Files:
    """Return the files of a report of *facts*; takes some ten milliseconds."""
    summary = build(facts)
    return Files(summary, page(parse(summary)))
