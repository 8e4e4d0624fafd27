"""What is wrong with each of several processes, read and evaluated together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from jaxmon.cli.workers import TIMEOUT, AgentProcess
from jaxmon.facts import responses
from jaxmon.facts.process import Snapshot, read
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.limits import Limits
from jaxmon.symptoms.finding import Finding
from jaxmon.symptoms.findings import HostFindings, about
from jaxmon.symptoms.symptom import Urgency


_MAX_BYTES = 5 << 20


class Judged(NamedTuple):
    """
    A process, what its agent reports, and what is wrong with it.

    Attributes:
        worker: the process; without a report if it is in trouble.
        events: response of ``/debug/events``, empty if there was none.
    """

    worker: AgentProcess
    snapshot: Snapshot
    findings: Sequence[Finding]
    events: dict[str, object]


def judged(workers: Iterable[AgentProcess], limits: Limits) -> list[Judged]:
    """
    Return *workers*, judged by *limits*, the worst first: those that do not respond,
    then by their most urgent finding. Takes at most `TIMEOUT`, and some milliseconds
    for each.
    """
    workers = list(workers)
    sockets = {one.number: one.socket for one in workers if not one.trouble}
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
        Judged(one, snapshots[one.number], host.of(one.number), events[one.number])
        if one.number in snapshots
        else Judged(one, Snapshot(), (), {})
        for one in workers
    ]
    return sorted(every, key=_rank)


def _rank(one: Judged) -> tuple[int, float, int]:
    first = next(iter(one.findings), None)
    if one.worker.trouble:
        urgency, seconds = -1, 0.0
    elif first is None:
        urgency, seconds = len(Urgency), 0.0
    else:
        urgency, seconds = int(about(first).urgency), first.seconds
    return urgency, -seconds, int(one.worker.number)


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
