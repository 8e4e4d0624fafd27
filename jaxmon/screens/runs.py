"""
The summary of a run: what is kept of a process, and what two of them are compared by.

Written by the agent at the end of a process, and by commands while it is running.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from jaxmon.catalog import AGENT_DIED, AGENT_UP
from jaxmon.errors import ConfigFileError, JaxmonError, raised
from jaxmon.exposition.families import Family, gauge
from jaxmon.facts.events import Difference, Recompile
from jaxmon.facts.process import Environment, Snapshot, read
from jaxmon.facts.reader import from_json, mapping
from jaxmon.facts.reading import read as read_families
from jaxmon.facts.record import NOTHING, Fact
from jaxmon.facts.status import Answer, FindingSummary, HostVerdict, ProcessVerdict
from jaxmon.facts.walltime import WallTime
from jaxmon.host import disclosure
from jaxmon.host.files import bounded
from jaxmon.host.formats import json_text
from jaxmon.host.formats.layout import counted, shortened
from jaxmon.limits import Limits
from jaxmon.screens.notes import doubts
from jaxmon.screens.status import summarise
from jaxmon.screens.time_table import doing
from jaxmon.symptoms.findings import as_fact, find, verdict
from jaxmon.symptoms.symptom import Finding
from jaxmon.symptoms.unmarked import calling


SCHEMA = 1
"""
Version of ``summary.json``: raised when a reader of the one before would be misled.
Fields may be added at any time.
"""

MOST_BYTES = 2 << 20
"""Maximum size of a summary, and of its page."""

_DIGITS = 6
# Beyond it, a number is a time, or of bytes.
_LARGE = 1e6
_LIST = r"\[[^][{}\"]*\]"
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


def stem(moment: float, pid: int) -> str:
    """Return the name of the files, without suffix, of a report of a process."""
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(moment))
    return f"run-{when}-{pid}"


class Run(Fact):
    """
    The summary of a run.

    Attributes:
        schema: of the file; 0 if it has none.
        written: Unix time.
        host: name of the host.
        worker: the slot of the process.
        state: ``running``, ``finished``, or ``crashed`` after an uncaught exception.
        quiet: what is said if nothing is to fix.
        notes: why findings may be missing or wrong, and what is omitted.
        versions: what its speed depends on besides the program, by name.
        packages: versions of what is installed.
        snapshot: all other facts.
    """

    schema: int = 0
    written: float = 0.0
    host: str = ""
    worker: str = ""
    state: str = "running"
    answer: Answer = Answer()
    findings: tuple[FindingSummary, ...] = ()
    quiet: str = ""
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = NOTHING
    packages: Mapping[str, str] = NOTHING
    snapshot: Snapshot = Snapshot()


def _plain(value: Any, text: Callable[[str], str]) -> Any:
    """Return *value* in JSON types, numbers rounded, each text passed to *text*."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        digits = float(f"{value:.{_DIGITS}g}")
        return round(value, 3) if abs(value) >= _LARGE else digits
    if isinstance(value, Fact):
        return {name: _plain(getattr(value, name), text) for name in value.fields}
    if isinstance(value, Mapping):
        return {text(str(key)): _plain(value[key], text) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item, text) for item in value]
    return value


def _as_text(document: Mapping[str, Any]) -> str:
    """Return *document* as text, each list of numbers on a line; "" if too large."""
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    text = re.sub(_LIST, lambda found: " ".join(found[0].split()), text) + "\n"
    return text if len(text.encode("utf-8", "backslashreplace")) <= MOST_BYTES else ""


class RunError(JaxmonError):
    """A file is no summary of a run."""


def parse(text: str | bytes) -> Run:
    """Return the run in *text*."""
    try:
        document = mapping(json_text.parse(text, odd_numbers=True))
    except ValueError as error:
        msg = f"it is {error}"
        raise RunError(msg) from error
    if type(document.get("schema")) is not int or "functions" not in document:
        msg = "it is no summary of a run; write one with `jaxmon report`"
        raise RunError(msg)
    with raised(RunError, "", ValueError):
        json_text.require_schema(document, SCHEMA, oldest=0)
    found = from_json(Run, document)
    return found.replace(snapshot=from_json(Snapshot, document))


def read_file(path: Path) -> Run:
    """
    Return the run in the file *path*, or in the one summary of the directory *path*.

    Raises:
        RunError: there is none, there are several, or it is damaged.
    """
    if path.is_dir():
        path = _only(path)
    with raised(RunError, path, ConfigFileError, RunError):
        return parse(bounded.read(path, most=MOST_BYTES, pipe=True))


def _only(directory: Path) -> Path:
    found = sorted((*directory.glob("run-*.json"), *directory.glob("summary.json")))
    if len(found) == 1:
        return found[0]
    if not found:
        msg = f"{directory} has no summary; give a directory with one, or a file"
    else:
        names = ", ".join(file.name for file in found[-3:])
        msg = f"{directory} has {len(found)} summaries; give one of them: {names}"
    raise RunError(msg)


class Facts(NamedTuple):
    """
    What an agent reports.

    Attributes:
        overview: as ``/debug/overview``, or as the process itself knows it.
        events: as ``/debug/events``.
        environment: as ``/debug/environment``.
        families: its metrics.
        host: name of the host.
        worker: its slot.
        state: as in `jaxmon.screens.runs.Run`.
        crash: how it crashed, in a sentence; empty if it did not, or that is unknown.
        others: the functions of its neighbours.
        redacted: removes secrets from a text, besides those of well-known forms.
        limits: by which it is judged; the defaults if `None`.
    """

    overview: Mapping[str, Any] | Snapshot
    events: Mapping[str, Any]
    environment: Mapping[str, Any]
    families: Iterable[Family]
    host: str
    worker: str
    state: str
    crash: str = ""
    others: Sequence[Snapshot] = ()
    redacted: Callable[[str], str] = str
    limits: Limits | None = None


def build(facts: Facts) -> str:
    """
    Return the summary as text in JSON, of at most `MOST_BYTES`, without secrets, in an
    order that depends on nothing but the facts. Takes milliseconds.
    """
    document = _document(facts)
    texts = (_as_text(_with_room(document, room)) for room in _ROOMS)
    return next(filter(None, texts), "")


def _document(facts: Facts) -> dict[str, Any]:
    snapshot = read(facts.overview, facts.events, facts.limits)
    findings = find(snapshot, facts.others)
    snapshot = _bounded(snapshot)
    environment = from_json(Environment, facts.environment)
    document = {
        "schema": SCHEMA,
        "written": snapshot.process.now,
        "host": facts.host,
        "worker": facts.worker,
        "state": facts.state,
        "answer": _answer(facts, snapshot, findings),
        "findings": [as_fact(finding) for finding in findings],
        "quiet": verdict(findings),
        "notes": [*doubts(snapshot)],
        "versions": environment.versions,
        **{name: getattr(snapshot, name) for name in _KEPT},
        "packages": environment.packages,
    }
    # An older agent gives all of the command line.
    program = str(mapping(mapping(facts.overview).get("process")).get("program") or "")
    words = disclosure.hidden(program.split(" "), announced=True)
    hidden = sorted(words, key=len, reverse=True)

    def redacted(text: str) -> str:
        return facts.redacted(disclosure.forms(disclosure.without(text, hidden)))

    return {name: _plain(value, redacted) for name, value in document.items()}


def _answer(facts: Facts, snapshot: Snapshot, findings: Sequence[Finding]) -> Answer:
    families = [*facts.families, gauge(AGENT_UP, 1, facts.worker)]
    if facts.state == "crashed":
        loop = snapshot.steps[0].name if snapshot.steps else ""
        families.append(gauge(AGENT_DIED, 1, facts.worker, loop))
    now = read_families(families, time=snapshot.process.now, worker=facts.worker)
    found = tuple(map(as_fact, findings))
    verdicts = ProcessVerdict(findings=found, verdict=facts.crash)
    if facts.state == "running":
        text, calls = doing(snapshot), calling(snapshot)
        verdicts = verdicts.replace(
            doing=text, calling=calls, recognised=snapshot.recognised
        )
    status = summarise(
        now,
        young=inf,
        whole=False,
        verdict=HostVerdict({facts.worker: verdicts}),
        limits=facts.limits,
    )
    return status.answer


def _bounded(snapshot: Snapshot) -> Snapshot:
    held, moved = snapshot.allocations, snapshot.transfers
    moved = moved.replace(lines=moved.lines[:_MOST_PLACES])
    return snapshot.replace(
        recompiles=tuple(map(_shortened, snapshot.recompiles)),
        allocations=held.replace(lines=held.lines[:_MOST_PLACES]),
        transfers=moved,
        time=WallTime(since_start=snapshot.time.since_start),
    )


def _shortened(recompile: Recompile) -> Recompile:
    kept = recompile.differences[:_MOST_DIFFERENCES]
    return recompile.replace(
        differences=tuple(
            Difference(shortened(difference.text, _LONGEST)) for difference in kept
        ),
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
