"""Builds the summary of a run out of what its agent reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

from jaxmon import disclosure
from jaxmon.catalog import AGENT_DIED, AGENT_UP
from jaxmon.exposition.families import Family, gauge
from jaxmon.facts.events import Difference, Recompile
from jaxmon.facts.host import HostVerdict, ProcessVerdict
from jaxmon.facts.process import Snapshot, read
from jaxmon.facts.reader import from_json, mapping
from jaxmon.facts.reading import read as read_families
from jaxmon.facts.walltime import WallTime
from jaxmon.formats.layout import counted, shortened
from jaxmon.limits import Limits
from jaxmon.report.notes import doubts
from jaxmon.report.runs import SCHEMA
from jaxmon.report.runs.json_text import as_text, plain
from jaxmon.report.runs.model import Answer, Found
from jaxmon.report.status.summary import summarise
from jaxmon.symptoms.finding import Finding
from jaxmon.symptoms.findings import as_json, find, verdict


# What is kept of a snapshot, in this order.
_KEPT = (
    *("process", "functions", "functions_left_out", "recompiles"),
    *("requests", "steps", "queues", "time", "run"),
    *("memory", "allocations", "transfers"),
    *("cache", "signatures", "values", "warnings", "slower", "errors"),
    *("usual", "charts"),
)
_MOST_DIFFERENCES = 8
_LONGEST = 300
_MOST_PLACES = 50
# Of functions and of recompiles, tried one after the other until all fits.
_ROOMS = (500, 200, 80, 30, 10)


class Facts(NamedTuple):
    """
    What an agent reports.

    Attributes:
        overview: as ``/debug/overview``.
        events: as ``/debug/events``.
        environment: as ``/debug/environment``.
        families: its metrics.
        host: name of the host.
        worker: its slot.
        state: as in `jaxmon.report.runs.model.Run`.
        others: the functions of its neighbours.
        redacted: removes secrets from a text, besides those of well-known forms.
        limits: by which it is judged; the defaults if `None`.
    """

    overview: Mapping[str, Any]
    events: Mapping[str, Any]
    environment: Mapping[str, Any]
    families: Iterable[Family]
    host: str
    worker: str
    state: str
    others: Sequence[Snapshot] = ()
    redacted: Callable[[str], str] = str
    limits: Limits | None = None


@dataclass(frozen=True, slots=True)
class _Environment:
    versions: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)


def build(facts: Facts) -> str:
    """
    Return the summary as text in JSON, of at most `MOST_BYTES`, without secrets, in an
    order that depends on nothing but the facts. Takes milliseconds.
    """
    document = _document(facts)
    text = ""
    for room in _ROOMS:
        text = as_text(_with_room(document, room))
        if text:
            break
    return text


def _document(facts: Facts) -> dict[str, Any]:
    snapshot = read(facts.overview, facts.events, facts.limits)
    findings = find(snapshot, facts.others)
    snapshot = _bounded(snapshot)
    environment = from_json(_Environment, facts.environment)
    document = {
        "schema": SCHEMA,
        "written": snapshot.process.now,
        "host": facts.host,
        "worker": facts.worker,
        "state": facts.state,
        "answer": _answer(facts, snapshot, findings),
        "findings": [from_json(Found, as_json(one)) for one in findings],
        "quiet": verdict(findings),
        "notes": [*doubts(snapshot)],
        "versions": environment.versions,
        **{name: getattr(snapshot, name) for name in _KEPT},
        "packages": environment.packages,
    }
    # An older agent gives all of the command line.
    program = str(mapping(facts.overview.get("process")).get("program") or "")
    known = sorted(disclosure.hidden(program.split(" "), announced=True), key=len)[::-1]

    def redacted(text: str) -> str:
        return facts.redacted(disclosure.forms(disclosure.without(text, known)))

    return {name: plain(value, redacted) for name, value in document.items()}


def _answer(facts: Facts, snapshot: Snapshot, findings: Sequence[Finding]) -> Answer:
    """Return whether users have been all right since the start."""
    families = [*facts.families, gauge(AGENT_UP, 1, facts.worker)]
    if facts.state == "crashed":
        families.append(gauge(AGENT_DIED, 1, facts.worker, ""))
    now = read_families(families, time=snapshot.process.now, worker=facts.worker)
    verdicts = ProcessVerdict(findings=[as_json(one) for one in findings])
    status = summarise(
        now,
        young=inf,
        whole=False,
        verdict=HostVerdict({facts.worker: verdicts}),
        limits=facts.limits,
    )
    return from_json(Answer, status["answer"])


def _bounded(snapshot: Snapshot) -> Snapshot:
    """Return *snapshot* with what a report has room for."""
    held, moved = snapshot.allocations, snapshot.transfers
    moved = replace(moved, lines=moved.lines[:_MOST_PLACES])
    return replace(
        snapshot,
        recompiles=tuple(map(_shortened, snapshot.recompiles)),
        allocations=replace(held, lines=held.lines[:_MOST_PLACES]),
        transfers=moved,
        time=WallTime(since_start=snapshot.time.since_start),
    )


def _shortened(recompile: Recompile) -> Recompile:
    kept = recompile.differences[:_MOST_DIFFERENCES]
    return replace(
        recompile,
        differences=tuple(Difference(shortened(one.text, _LONGEST)) for one in kept),
        omitted=recompile.omitted + len(recompile.differences) - len(kept),
    )


def _with_room(document: Mapping[str, Any], room: int) -> dict[str, Any]:
    """Return *document* with at most so many functions, and the latest recompiles."""
    functions, recompiles = document["functions"], document["recompiles"]
    left = len(functions) - room
    notes = list(document["notes"])
    if left > 0:
        notes.append(f"{counted(left, 'further function')} omitted here.")
    return {
        **document,
        "notes": notes,
        "functions": functions[:room],
        "functions_left_out": document["functions_left_out"] + max(left, 0),
        "recompiles": recompiles[-room:],
    }
