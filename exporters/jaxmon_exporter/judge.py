"""
The findings of ``jaxmon explain`` on the processes of this host.

Reads the debug endpoints of all agents concurrently, and evaluates one after the other,
so that only one response is held as objects. Loaded when someone reads the findings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from jaxmon.facts import endings, responses
from jaxmon.facts.ending import CRASHED, IN_ORDER, STOPPED
from jaxmon.facts.process import read
from jaxmon.facts.status import (
    FindingSummary,
    HostVerdict,
    ProcessVerdict,
    SharedFinding,
)
from jaxmon.host import rundir
from jaxmon.host.formats.layout import clean
from jaxmon.host.http import fetch
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.host.resources import hung
from jaxmon.limits import Limits
from jaxmon.screens.notes import doubts
from jaxmon.screens.time_table import doing
from jaxmon.symptoms.cache import shared
from jaxmon.symptoms.findings import HostFindings, as_fact, unjudged, verdict
from jaxmon.symptoms.symptom import Finding
from jaxmon.symptoms.unmarked import calling


# An agent's events are at most 4 MiB, its overview usually a tenth of that.
_MAX_BYTES = 5 << 20
_MAX_TOTAL = 16 << 20
# Some hundred findings; a page with more would be no help.
_MAX_FINDINGS = 256 << 10
_MOST_OF_A_NOTE = 500
_MOST_OF_A_PROGRAM = 300
_SHOWN = 200


def judge(run_dir: Path, limits: Limits, *, timeout: float) -> HostVerdict:
    """
    Return the findings on all processes with an agent in *run_dir*, by *limits*.

    Takes at most *timeout* seconds for each of the two responses, which all agents
    generate at the same time, plus some milliseconds per process. One that does not
    respond has a reason instead, and what the kernel knows of it.
    """
    try:
        sockets = rundir.sockets(run_dir)
    except OSError as error:
        trouble = f"unknown: run directory {run_dir}: {error.strerror}"
        return HostVerdict(trouble=trouble)
    fetched = partial(
        fetch_all, timeout=timeout, max_bytes=_MAX_BYTES, max_total=_MAX_TOTAL
    )
    overviews = fetched(sockets, "/debug/overview")
    responding = {
        worker: path
        for worker, path in sockets.items()
        if not isinstance(overviews[worker], FetchError)
    }
    events = fetched(responding, "/debug/events")
    host = HostFindings()
    processes: dict[str, ProcessVerdict] = {}
    for worker in sockets:
        with _contained(worker, processes):
            overview = responses.overview(overviews.pop(worker))
            happened = responses.decoded(events.pop(worker))
            snapshot = read(overview, happened, limits)
            host.add(worker, snapshot)
            of = snapshot.process
            processes[worker] = ProcessVerdict(
                of.pid,
                of.program[:_MOST_OF_A_PROGRAM],
                of.observed_seconds,
                release=of.release[:_MOST_OF_A_PROGRAM],
                notes=tuple(note[:_MOST_OF_A_NOTE] for note in doubts(snapshot)),
                verdict=unjudged(snapshot),
                doing=doing(snapshot)[:_MOST_OF_A_NOTE],
                calling=calling(snapshot),
                recognised=snapshot.recognised,
                rank=of.rank,
            )
    judged: dict[str, list[Finding]] = {}
    for worker, process in list(processes.items()):
        if not process.trouble:
            with _contained(worker, processes):
                found = host.of(worker)
                processes[worker] = process.replace(
                    findings=_as_facts(found), verdict=verdict(found, process.verdict)
                )
                judged[worker] = found
    processes = {
        worker: _seen(sockets[worker], process) if process.trouble else process
        for worker, process in processes.items()
    }
    for worker, end in endings.ends(run_dir).items():
        # What its socket says, if that is left, is only that it is gone.
        is_unread = worker not in processes or processes[worker].trouble
        if is_unread and end.ended == STOPPED:
            processes.pop(worker, None)
        elif is_unread and end.ended not in IN_ORDER:
            processes[worker] = ProcessVerdict(
                end.pid or None,
                end.program[:_MOST_OF_A_PROGRAM],
                verdict=clean(end.line(age := endings.age_of(end)))[:_MOST_OF_A_NOTE],
                crashed_seconds=age if end.ended == CRASHED else None,
                ended_seconds=age,
                unrecorded=end.unrecorded,
            )
    for worker, text in endings.repeated(run_dir).items():
        if worker in processes:
            repeated = clean(text)[:_MOST_OF_A_NOTE]
            processes[worker] = processes[worker].replace(repeated=repeated)
    together = tuple(
        SharedFinding(**vars(as_fact(finding)), workers=tuple(workers))
        for workers, finding in shared(judged)
    )
    return HostVerdict(processes, together)


def _seen(path: Path, found: ProcessVerdict) -> ProcessVerdict:
    """Return *found* with what the kernel knows of the process that listens there."""
    pid = hung.listener(path)
    if pid is None:
        return found
    trouble = hung.STOPPED if hung.is_stopped(pid) else found.trouble
    return found.replace(
        pid=pid, program=hung.program(pid)[:_MOST_OF_A_PROGRAM], trouble=trouble
    )


@contextmanager
def _contained(worker: str, processes: dict[str, ProcessVerdict]) -> Iterator[None]:
    """Have a failure cost this process its findings, and only this one."""
    try:
        yield
    except FetchError as error:
        processes.pop(worker, None)
        if error.reason != fetch.LEFT:  # in order, meanwhile
            trouble = clean(responses.trouble(error))
            processes[worker] = ProcessVerdict(trouble=trouble)
    except Exception as error:  # noqa: BLE001 - whatever an agent may report
        trouble = f"reports what cannot be evaluated: {clean(str(error))[:_SHOWN]}"
        processes[worker] = ProcessVerdict(trouble=trouble)


def _as_facts(findings: Sequence[Finding]) -> tuple[FindingSummary, ...]:
    """Return *findings* for the summary; `ValueError` if too long, or no JSON."""
    found = tuple(map(as_fact, findings))
    if len(json.dumps([*map(vars, found)], allow_nan=False)) > _MAX_FINDINGS:
        msg = f"its findings take more than {_MAX_FINDINGS} bytes"
        raise ValueError(msg)
    return found
