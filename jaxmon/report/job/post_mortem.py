"""
Which failure of a job was the first: from what its ranks left to the one at fault.

A rank that dies takes all others along: their collectives fail, or JAX ends them, and
each of them says so. So what speaks of other processes is a consequence, whatever a
clock says; and who dies without a word after another has failed was probably ended by
JAX, which leaves no word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxmon.facts.ending import FINISHED
from jaxmon.report.job.failures import Ending, Failure, failure, failures
from jaxmon.report.job.model import Job, State, Suspects
from jaxmon.report.job.places import apart_from, waiting_of
from jaxmon.report.job.records import Host, Rank
from jaxmon.report.job.verdict import busy, judge


_SLACK = 2.0
"""
Seconds that the end of a process may be noticed after its first consequence: it closes
its connections, and others fail at once. Exceptions are noticed before.
"""


@dataclass(frozen=True, slots=True)
class PostMortem:
    """
    How a job failed.

    Attributes:
        coordinator: its coordinator, by which it is known.
        count: of its processes.
        hosts: on how many hosts they were found.
        ranks: all that are known, by number.
        first: what failed first; `None` if nothing did, or that is not known.
        together: what may have failed before *first*, as far as the clocks show.
        later: what failed by itself, after that.
        consequences: what failed because of it, in order.
        waiting: the ranks that have not failed, and wait for a device, and so for
            others.
        running: those that do something else, and what.
        finished: the ranks that have ended in order.
        missing: the ranks that no sidecar reports.
        restarted: those that failed, and have been started again since.
        hangs: whether the job does not get on.
    """

    coordinator: str
    count: int
    hosts: int
    ranks: tuple[Rank, ...]
    first: Failure | None
    together: tuple[Failure, ...] = ()
    later: tuple[Failure, ...] = ()
    consequences: tuple[Failure, ...] = ()
    waiting: tuple[int, ...] = ()
    running: tuple[Suspects, ...] = ()
    finished: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    restarted: tuple[int, ...] = ()
    hangs: bool = False

    @property
    def failed(self) -> bool:
        """Whether any rank has failed."""
        return self.first is not None or bool(self.consequences)


@dataclass(frozen=True, slots=True)
class Found:
    """
    What is found out about the jobs of some hosts.

    Attributes:
        jobs: those that failed, the latest first, then the others.
        hosts: all hosts, also those that did not answer.
        unknown: failures of processes of which it is not known which rank they were, if
            one is missing or no job is known; the latest first.
        others: processes that belong to no job.
    """

    jobs: tuple[PostMortem, ...]
    hosts: tuple[Host, ...]
    others: int
    unknown: tuple[Failure, ...] = ()


def examine(hosts: Sequence[Host]) -> Found:
    """Return how the jobs of *hosts* failed."""
    by_job: defaultdict[tuple[str, int], list[Failure]] = defaultdict(list)
    for host in hosts:
        for one in failures(host):
            by_job[one.rank.coordinator, one.rank.count or 0].append(one)
    verdict = judge(hosts)
    made = [
        _post_mortem(job, by_job[job.coordinator, job.count]) for job in verdict.jobs
    ]
    made.sort(key=_recency)
    missing = not made or any(job.missing for job in made)
    return Found(
        tuple(made), tuple(hosts), verdict.others, _unknown(hosts) if missing else ()
    )


def _unknown(hosts: Iterable[Host]) -> tuple[Failure, ...]:
    found = [failure(host, rank) for host in hosts for rank in host.unknown]
    known = [one for one in found if one is not None]
    return tuple(sorted(known, key=lambda one: -one.time))


def _post_mortem(job: Job, found: Iterable[Failure]) -> PostMortem:
    order = _ordered(_latest(found))
    failed = {one.rank.index: one for one in order.every()}
    again = [
        one.index
        for one in job.ranks
        if one.responds and one.index in failed and _began_after(one, failed[one.index])
    ]
    alive = [one for one in job.ranks if one.responds and one.index not in failed]
    waiting = waiting_of(alive)
    known = {one.index for one in job.ranks}
    return PostMortem(
        job.coordinator,
        job.count,
        job.hosts,
        job.ranks,
        *order,
        waiting.numbers,
        tuple(busy(apart_from(alive, waiting), waiting)),
        tuple(
            one.index or 0
            for one in job.ranks
            if one.ended == FINISHED and one.index not in failed
        ),
        tuple(n for n in range(job.count) if n not in known),
        tuple(one for one in again if one is not None),
        job.state is State.HUNG,
    )


def _began_after(rank: Rank, failure: Failure) -> bool:
    """Return whether *rank* is a process that was started since the *failure*."""
    # In containers, processes have the same number each time.
    age = rank.since_seconds + rank.observed_seconds
    return rank.pid != failure.rank.pid or 0 < age < failure.host.asked - failure.last


def _recency(job: PostMortem) -> tuple[bool, float]:
    first = job.first or next(iter(job.consequences), None)
    return first is None, 0.0 if first is None else -first.time


def _latest(found: Iterable[Failure]) -> list[Failure]:
    """
    Return the failures of the latest attempt: one of each rank, without those before
    another's process began.
    """
    latest: dict[int, Failure] = {}
    for one in sorted(found, key=lambda one: one.time):
        latest[one.rank.index or 0] = one
    began = max(map(_began, latest.values()), default=0.0)
    return [one for one in latest.values() if one.last >= began]


def _began(one: Failure) -> float:
    """Return when the process of *one* began to be observed, 0 if that is unknown."""
    rank, host = one.rank, one.host
    if rank.observed_seconds <= 0:
        return 0.0
    lived = rank.since_seconds + rank.observed_seconds
    return host.asked - lived - host.within


class _Order(NamedTuple):
    """Failures of a job; see `PostMortem`."""

    first: Failure | None
    together: tuple[Failure, ...]
    later: tuple[Failure, ...]
    consequences: tuple[Failure, ...]

    def every(self) -> Iterator[Failure]:
        """Yield all of them."""
        if self.first is not None:
            yield self.first
        yield from (*self.together, *self.later, *self.consequences)


def _ordered(found: Iterable[Failure]) -> _Order:
    """Return which of the failures was the first, and what the others are."""
    every = sorted(found, key=lambda one: (one.time, one.rank.index or 0))
    end = min([one.last for one in every if one.of_peers], default=float("inf"))
    causes = [
        one
        for one in every
        if not one.of_peers and one.first <= end + _SLACK * one.is_silent
    ]
    if not causes:
        # Nothing known has failed before those that speak of others.
        return _Order(None, (), (), tuple(every))
    first = _first(causes)
    rest = [one for one in every if one is not first]
    together, later, consequences = [], [], []
    for one in rest:
        if one.of_peers or _follows(one, first):
            consequences.append(one)
        elif one.meets(first):
            together.append(one)
        else:
            later.append(one)
    return _Order(first, tuple(together), tuple(later), tuple(consequences))


def _first(causes: Sequence[Failure]) -> Failure:
    """Return the likeliest first of *causes*, which are in order."""
    said = [one for one in causes if not one.is_silent]
    silent = [one for one in causes if one.is_silent]
    if said:
        # JAX kills ranks after one has failed; before that, something else did.
        before = [one for one in silent if one.last < said[0].first]
        return before[0] if before else said[0]
    same = [one for one in silent if one.meets(silent[0])]
    # Without the coordinator, which rank 0 runs, JAX ends all others at once.
    return min(same, key=lambda one: (one.rank.index != 0, one.time))


def _follows(one: Failure, first: Failure) -> bool:
    """Return whether JAX probably ended *one* because *first* had failed."""
    if one.ending is not Ending.KILLED:
        return False
    return not first.is_silent or first.rank.index == 0 or not one.meets(first)
