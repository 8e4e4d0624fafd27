"""What is wrong with each of several processes, read and evaluated together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jaxmon.cli.workers import TIMEOUT, AgentProcess
from jaxmon.facts import responses
from jaxmon.facts.process import Snapshot, read
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.limits import Limits
from jaxmon.symptoms.findings import HostFindings, about
from jaxmon.symptoms.symptom import Finding, Urgency


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
