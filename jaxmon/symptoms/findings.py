"""From the facts of processes to findings: what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from jaxmon.facts.process import Snapshot
from jaxmon.facts.status import FindingSummary
from jaxmon.host.formats.layout import size
from jaxmon.symptoms import (
    cache,
    compiles,
    errors,
    hardware,
    job,
    memory,
    monitoring,
    programs,
    recompiles,
    requests,
    results,
    runs,
    serving,
    starts,
    steps,
    time,
    updates,
)
from jaxmon.symptoms.alert import PAGE
from jaxmon.symptoms.cache import compared
from jaxmon.symptoms.stalls import waiting
from jaxmon.symptoms.symptom import Finding, Symptom, Urgency


_FAMILIES = (
    *(memory, compiles, cache, runs, steps, requests, errors, results),
    *(serving, recompiles, programs, updates, time, starts, job, hardware, monitoring),
)

SYMPTOMS: Mapping[str, Symptom] = {
    symptom.name: symptom for family in _FAMILIES for symptom in family.SYMPTOMS
}


GENERAL = frozenset(("host", "blocked", "eager"))
"""Findings that say where the time goes, and not that something is wrong."""
DOUBT = "short"
"""The topic of what says that too little was seen; the last finding, not numbered."""
_DOUBTS = frozenset((DOUBT, "unmeasured"))
_OF_A_LINE = frozenset(("profiles", "event_loop"))
# A thread that failed, then what users notice themselves, which may follow from that.
_NOTICED = (
    *("thread_failed", "requests", "hanging", "cold_requests", "requests_slow"),
    "stalled",
)
NOTHING = "Nothing to fix stands out."


def find(snapshot: Snapshot, neighbours: Sequence[Snapshot] = ()) -> list[Finding]:
    """
    Return what to change, the most urgent first; empty if nothing stands out.

    Args:
        snapshot: what the agent of a process reports, and the limits.
        neighbours: what those of other processes of the host report, if known.
    """
    return _ranked([*_alone(snapshot), *_together(snapshot, neighbours)])


class HostFindings:
    """
    The findings of `find` for every process of a host, added one after the other: of
    each, only what the others are compared with is kept.
    """

    def __init__(self) -> None:
        self._alone: dict[str, list[Finding]] = {}
        self._kept: dict[str, Snapshot] = {}

    def add(self, process: str, snapshot: Snapshot) -> None:
        """Add what the agent of *process* reports."""
        self._alone[process] = _alone(snapshot)
        self._kept[process] = compared(snapshot)

    def of(self, process: str) -> list[Finding]:
        """Return the findings on *process*, the most urgent first."""
        others = [self._kept[worker] for worker in self._kept if worker != process]
        together = _together(self._kept[process], others)
        return _ranked([*self._alone[process], *together])


def about(finding: Finding) -> Symptom:
    """Return what *finding* has in common with others of its topic."""
    return SYMPTOMS[finding.topic]


def unjudged(snapshot: Snapshot) -> str:
    """Return what may become a finding: a wait that is long, or memory that grows."""
    found = [of for of in snapshot.allocations.growing if of.lines and of.seconds]
    if (waits := waiting(snapshot)) or not found:
        return waits
    most = max(found, key=lambda of: of.growth_bytes)
    place = most.lines[0].place
    return (
        f"Memory grows: arrays {f'of {place} ' if place else ''}by "
        f"{size(most.growth_bytes / most.seconds)} a second, {size(most.growth_bytes)} "
        "so far. If that goes on, it counts as a leak."
    )


def verdict(findings: Iterable[Finding], yet: str = "") -> str:
    """Return *yet*, or `NOTHING`, if enough was seen and nothing is to fix."""
    quiet = all(
        about(finding).urgency is Urgency.NOTE and finding.topic not in _DOUBTS
        for finding in findings
    )
    return (yet or NOTHING) if quiet else ""


def as_fact(finding: Finding) -> FindingSummary:
    """Return it with what findings of its topic have in common."""
    symptom = about(finding)
    return FindingSummary(
        *finding[:-1],
        severity=finding.severity or symptom.severity or "",
        urgency=symptom.urgency.name.lower(),
        metric="" if symptom.metric is None else symptom.metric.name,
        panel=symptom.panel,
        runbook=symptom.runbook,
    )


def _alone(snapshot: Snapshot) -> list[Finding]:
    # Some judge several symptoms.
    judges = dict.fromkeys(of.finding for of in SYMPTOMS.values() if of.finding)
    # What threads did at once takes more together than the clock.
    most = snapshot.process.observed_seconds or inf
    return [
        finding._replace(seconds=min(finding.seconds, most))
        for judge in judges
        for finding in judge(snapshot)
    ]


def _together(snapshot: Snapshot, neighbours: Sequence[Snapshot]) -> list[Finding]:
    judges = [symptom.together for symptom in SYMPTOMS.values() if symptom.together]
    return [finding for judge in judges for finding in judge(snapshot, neighbours)]


def rank(
    name: str, seconds: float, *, fails: bool
) -> tuple[bool, bool, Urgency, bool, float]:
    """
    Return the place of a symptom among others, on every screen: first what pages, then
    what others follow from, then by urgency, what users notice first, then by the
    *seconds* that it would win back.
    """
    symptom = SYMPTOMS[name]
    urgency = (
        symptom.urgency if symptom.finding or symptom.together else Urgency.FAILURE
    )
    return not fails, name != _NOTICED[0], urgency, name not in _NOTICED, -seconds


def _place(finding: Finding) -> tuple[bool, bool, Urgency, bool, float]:
    symptom = about(finding)
    pages = (finding.severity or symptom.severity) == PAGE
    noticed = finding.topic in _NOTICED and symptom.urgency is Urgency.FAILURE
    return rank(finding.topic, finding.seconds, fails=pages or noticed)


def _has_more(copies: Finding, copying: Mapping[str, float]) -> bool:
    """Return whether other lines take as long as its own, which has a finding."""
    return bool(copies.evidence) and copies.seconds >= 2 * copying[copies.where]


def _ranked(findings: list[Finding]) -> list[Finding]:
    """
    Return *findings* by `rank`; of a line that makes profiles, keeps an event loop, or
    copies in a loop, not what it looks like otherwise; of one that compiles operations,
    not that they run, too.
    """
    compiled = {of.where: of.seconds for of in findings if of.topic == "operations"}
    copying = {of.where: of.seconds for of in findings if of.topic == "transfer"}
    profiled = {of.where: of.seconds for of in findings if of.topic in _OF_A_LINE}
    distinct = [
        of
        for of in findings
        if (of.topic != "copies" or of.where not in copying or _has_more(of, copying))
        and (of.topic != "eager" or of.seconds > compiled.get(of.where, 0.0))
        and (of.topic not in GENERAL or of.seconds >= 2 * profiled.get(of.where, 0.0))
    ]
    return sorted(distinct, key=lambda of: (of.topic == DOUBT, *_place(of)))
