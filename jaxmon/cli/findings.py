"""What processes report, and what is wrong with them: judged, in brief, in colour."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from jaxmon.cli.options import limits_of
from jaxmon.cli.workers import TIMEOUT, AgentProcess, neighbours_of, of_kernel, pick
from jaxmon.errors import CommandError, PageError, misuse, raised
from jaxmon.exposition.families import Family
from jaxmon.exposition.parse import parse, to_family
from jaxmon.facts import responses
from jaxmon.facts.process import Snapshot, read
from jaxmon.facts.record import encoded
from jaxmon.host.formats.layout import counted, duration, shortened, wrapped
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.limits import Limits
from jaxmon.screens.runs import Facts, Run, RunError, build, read_file
from jaxmon.screens.runs import parse as parse_run
from jaxmon.screens.text import heading, screen
from jaxmon.symptoms.findings import (
    HostFindings,
    about,
    as_fact,
    find,
    unjudged,
    verdict,
)
from jaxmon.symptoms.job import WAITED_FOR, is_held_up
from jaxmon.symptoms.symptom import Finding, Urgency


_SCHEMA = 1

_MAX_BYTES = 5 << 20


class Judged(NamedTuple):
    """A process, what its agent reports, if it responds, and what is wrong with it."""

    worker: AgentProcess
    snapshot: Snapshot
    findings: Sequence[Finding]
    events: Mapping[str, object]

    def as_json(self) -> dict[str, Any]:
        """Return all of it in JSON types."""
        return {
            "schema": _SCHEMA,
            "worker": self.worker.number,
            "pid": self.worker.pid,
            "findings": [encoded(as_fact(finding)) for finding in self.findings],
            "overview": self.worker.overview,
            **self.events,
        }


def judge(worker: AgentProcess, run_dir: Path | None) -> Judged:
    """Return *worker*, judged; beside its neighbours, if they add something."""
    events = worker.fetch("/debug/events")
    snapshot = read(worker.overview, events, limits_of(run_dir))
    findings = find(snapshot, neighbours_of(worker, snapshot, run_dir))
    return Judged(worker, snapshot, findings, events)


def judged(workers: Iterable[AgentProcess], limits: Limits) -> list[Judged]:
    """Return *workers*, those that do not respond first; takes at most `TIMEOUT`."""
    workers = list(workers)
    sockets = {worker.number: worker.socket for worker in workers if not worker.trouble}
    answers = fetch_all(sockets, "/debug/events", timeout=TIMEOUT, max_bytes=_MAX_BYTES)
    host = HostFindings()
    snapshots, events = {}, {}
    for worker in workers:
        if worker.number in sockets:
            try:
                found = responses.decoded(answers[worker.number])
            except FetchError:  # without them there is less to say
                found = {}
            events[worker.number] = found
            snapshots[worker.number] = read(worker.overview, found, limits)
            host.add(worker.number, snapshots[worker.number])
    every = [
        Judged(worker, snapshots[number], host.of(number), events[number])
        if (number := worker.number) in snapshots
        else Judged(worker, Snapshot(), (), {})
        for worker in workers
    ]
    return sorted(every, key=_rank)


def _rank(process: Judged) -> tuple[int, float, int]:
    first = next(iter(process.findings), None)
    if process.worker.trouble:
        urgency, seconds = -1, 0.0
    elif first is None:
        urgency, seconds = len(Urgency), 0.0
    else:
        urgency, seconds = int(about(first).urgency), first.seconds
    return urgency, -seconds, int(process.worker.number)


COLOURS = {Urgency.FAILURE: "red", Urgency.TIME: "yellow", Urgency.HINT: "cyan"}
BROKEN = COLOURS[Urgency.FAILURE]
"""Of a process that does not respond."""

_HEADING = r"[A-Z][A-Z ]{3,}[A-Z](?=$|[ :(])"
_NUMBERED = r"  ( ?\d+)\. "
# Evidence is indented further, and advice says that it is.
_VERDICT = r"     (?! )(?!Advice: |To win back: |panel |jaxmon )"


class Painted(NamedTuple):
    """A line and how it looks; *colour* is one that click knows."""

    text: str
    colour: str | None = None
    bold: bool = False


BLANK = Painted("")


def in_brief(found: Sequence[Judged], width: int, height: int) -> Iterator[Painted]:
    """Yield one screen on each process."""
    for place, process in enumerate(found):
        if place:
            yield BLANK
        if process.worker.trouble:
            yield Painted(f"worker {process.worker.description}", BROKEN, bold=True)
            for line in of_kernel(process.worker)[: height - 1]:
                yield Painted(f"  {line}")
        else:
            lines = screen(
                process.snapshot,
                process.findings,
                worker=process.worker.number,
                width=width,
                height=height,
            )
            yield from painted(lines, process.findings)


def worst(found: Sequence[Judged], width: int) -> Iterator[Painted]:
    """Yield the worst finding of each process, and how to read on."""
    yield Painted(
        f"{len(found)} instrumented processes are running here, the worst first."
    )
    for process in found:
        yield BLANK
        age = process.worker.age
        if process.worker.trouble:
            text = shortened(f"worker {process.worker.description}", width)
            yield Painted(text, BROKEN, bold=True)
            continue
        since = "" if age is None else f" · for {duration(age)}"
        left = width - len(since)
        title = heading(process.snapshot.process, process.worker.number, left)
        yield Painted(f"{title}{since}", bold=True)
        quiet, colour = verdict(process.findings, unjudged(process.snapshot)), None
        if not (text := quiet):
            text = process.findings[0].verdict
            colour = COLOURS.get(about(process.findings[0]).urgency)
        for line in wrapped(text, width, first="  ", rest="  "):
            yield Painted(line, colour)
        if (rest := len(process.findings) - 1) > 0 and not quiet:
            yield Painted(f"  and {counted(rest, 'further finding')}")
    first = found[0].worker.number
    yield BLANK
    if any(is_held_up(of.snapshot.process.rank, of.findings) for of in found):
        yield Painted(WAITED_FOR)
    yield Painted(f"One of them: jaxmon explain {first}. All: jaxmon explain --all.")


def painted(lines: Iterable[str], findings: Sequence[Finding]) -> Iterator[Painted]:
    """Yield the *lines* of a report that has these *findings*."""
    among, colour = False, None
    for number, line in enumerate(lines):
        if number == 0 or re.match(_HEADING, line):
            among, colour = line.startswith("FINDINGS"), None
            yield Painted(line, bold=True)
        elif among and (found := re.match(_NUMBERED, line)):
            place = int(found[1]) - 1
            urgency = about(findings[place]).urgency if place < len(findings) else None
            colour = None if urgency is None else COLOURS.get(urgency)
            yield Painted(line, colour, bold=True)
        elif colour and re.match(_VERDICT, line):
            yield Painted(line, colour, bold=True)
        else:
            colour = None
            yield Painted(line)


_MAX_PAGE_BYTES = 32 << 20


def facts_of(worker: AgentProcess, run_dir: Path | None) -> Facts:
    """Return what the agent of *worker* reports; takes milliseconds."""
    events = worker.fetch("/debug/events")
    environment: Mapping[str, Any] = {}
    with suppress(CommandError):  # an older agent has none
        environment = worker.fetch("/debug/environment")
    text = fetch_all(
        {worker.number: worker.socket},
        "/metrics",
        timeout=TIMEOUT,
        max_bytes=_MAX_PAGE_BYTES,
    )[worker.number]
    limits = limits_of(run_dir)
    snapshot = read(worker.overview, events, limits)
    others = neighbours_of(worker, snapshot, run_dir)
    found = facts(worker, events, environment, text, others)
    return found._replace(limits=limits)


def facts(
    worker: AgentProcess,
    events: Mapping[str, Any],
    environment: Mapping[str, Any],
    metrics: str | FetchError,
    others: Sequence[Snapshot] = (),
) -> Facts:
    """Return what the agent of *worker* has reported, on a process that is running."""
    return Facts(
        overview=worker.overview,
        events=events,
        environment=environment,
        families=_families(metrics),
        host=platform.node(),
        worker=worker.number,
        state="running",
        others=others,
    )


def run_of(name: str, run_dir: Path | None) -> Run:
    """Return the run *name*: a file, a directory with one, or a running process."""
    path = Path(name)
    if path.exists():
        with raised(misuse, "", RunError):
            return read_file(path)
    try:
        return parse_run(build(facts_of(pick(name, run_dir), run_dir)))
    except CommandError as error:
        msg = f"{name!r} is no file or directory, and {error.message}"
        raise CommandError(msg, details=error.details, exit_code=2) from error


def _families(metrics: str | FetchError) -> list[Family]:
    """Return what *metrics* has; without it, less is known of users."""
    if isinstance(metrics, FetchError):
        return []
    try:
        return [to_family(family) for family in parse(metrics)]
    except PageError:
        return []
