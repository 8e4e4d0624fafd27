"""
Which failure of a job was the first: from what its ranks left to the one at fault.

A rank that dies takes all others along: their collectives fail, or JAX ends them, and
each of them says so. So what speaks of other processes is a consequence, whatever a
clock says; and who dies without a word after another has failed was probably ended by
JAX, which leaves no word.

All times are by the clock of who asked. A host reports only ages, so its own clock does
not matter; how well they are known depends on how quickly it responded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from jaxmon.facts.ending import CRASHED, FINISHED, KILLED, STOPPED
from jaxmon.facts.host import JobHost
from jaxmon.facts.rank import Rank
from jaxmon.job.model import Job, JobState, Suspects
from jaxmon.job.verdict import busy, is_of_peers, judge
from jaxmon.job.waiting import apart_from, numbers_of, waiting_of
from jaxmon.limits import Limits


# Thirty years: who reports more is wrong, or lies.
_OLDEST = 1e9


class FailureKind(Enum):
    """How a rank failed."""

    EXCEPTION = "exception"
    OOM = "oom"
    """An exception, perhaps turned into an exit: a device had no memory left."""
    EXIT = "exit"
    """`sys.exit` with another code than 0."""
    CRASHED = "crashed"
    """An uncaught exception, of which nothing more is known."""
    KILLED = "killed"
    """Without a word."""
    OOM_KILLED = "oom_killed"
    """Without a word, and the kernel killed a process of its cgroup for memory."""
    STOPPED = "stopped"
    """By SIGTERM or SIGINT: no failure, but others fail if it was alone."""


_SILENT = frozenset((FailureKind.KILLED, FailureKind.CRASHED, FailureKind.STOPPED))


class RankFailure(NamedTuple):
    """How a rank failed, between *first* and *last*; *of_peers* if others were gone."""

    rank: Rank
    host: JobHost
    kind: FailureKind
    first: float
    last: float
    of_peers: bool = False

    @property
    def time(self) -> float:
        """Return when it was, as well as that is known."""
        return (self.first + self.last) / 2

    @property
    def is_silent(self) -> bool:
        """Whether it ended without a word, as also by JAX when others are gone."""
        return self.kind in _SILENT

    def meets(self, other: RankFailure) -> bool:
        """Return whether it is unknown which of them was before the other."""
        return self.first <= other.last and other.first <= self.last


def failure_of(host: JobHost, rank: Rank) -> RankFailure | None:
    """Return how *rank* failed on *host*, `None` if it did not."""
    kind = _kind(rank)
    if kind is None:
        return None
    ages = [min(max(age, 0.0), _OLDEST) for age in _ages(rank)]
    return RankFailure(
        rank,
        host,
        kind,
        host.asked - max(ages) - host.within,
        host.asked - min(ages) + host.within,
        is_of_peers(rank.words),
    )


def _kind(rank: Rank) -> FailureKind | None:
    words = rank.words
    if STOPPED in (words.ended, rank.ended):
        return FailureKind.STOPPED if rank.ended else None
    if words.kind == "exception":
        # Someone may have called the hook for uncaught exceptions, and continued.
        age, failed_age = rank.age, words.age_seconds
        if (
            rank.responds
            and age is not None
            and failed_age is not None
            and age < failed_age - 1
        ):
            return None
        return FailureKind.OOM if words.oom else FailureKind.EXCEPTION
    if words.kind == "exit":
        return FailureKind.OOM if words.oom else FailureKind.EXIT
    if rank.ended == KILLED:
        return FailureKind.OOM_KILLED if rank.oom_kills else FailureKind.KILLED
    return FailureKind.CRASHED if rank.ended == CRASHED else None


def _ages(rank: Rank) -> tuple[float, ...]:
    """Return how many seconds ago it failed: a range, if that is not known well."""
    if rank.words.failed and rank.words.age_seconds is not None:
        return (rank.words.age_seconds,)
    if rank.closed_seconds is not None:
        return (rank.closed_seconds,)
    return rank.since_seconds, rank.ended_seconds


_SLACK = 2.0
"""
Seconds that the end of a process may be noticed after its first consequence: it closes
its connections, and others fail at once. Exceptions are noticed before.
"""


@dataclass(frozen=True, slots=True)
class PostMortem:
    """
    How a job failed, known by its coordinator: *first*, as far as that is known,
    *together* what may have failed before it by the clocks, *later* what failed by
    itself, and *consequences* in order.

    Of the others, some are *waiting* for a device, and so for ranks, some *running*
    something else, *finished*, *missing* from all sidecars, or *restarted* since.
    """

    coordinator: str
    count: int
    hosts: int
    ranks: tuple[Rank, ...]
    first: RankFailure | None
    together: tuple[RankFailure, ...] = ()
    later: tuple[RankFailure, ...] = ()
    consequences: tuple[RankFailure, ...] = ()
    waiting: tuple[int, ...] = ()
    running: tuple[Suspects, ...] = ()
    finished: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    restarted: tuple[int, ...] = ()
    hangs: bool = False

    @property
    def failed(self) -> bool:
        """Whether any rank has failed."""
        found = (self.first, *self.together, *self.later, *self.consequences)
        return any(
            of is not None and of.kind is not FailureKind.STOPPED for of in found
        )


class PostMortems(NamedTuple):
    """
    What is found out about jobs, the latest failure first; *unknown* are failures of
    processes of no known rank, if one is missing, the latest first.
    """

    jobs: tuple[PostMortem, ...]
    hosts: tuple[JobHost, ...]
    others: int
    unknown: tuple[RankFailure, ...] = ()


def examine(hosts: Sequence[JobHost], limits: Limits | None = None) -> PostMortems:
    """Return how the jobs of *hosts* failed, and by *limits*, which of them hang."""
    by_job: defaultdict[tuple[str, int], list[RankFailure]] = defaultdict(list)
    for host in hosts:
        for rank in host.ranks:
            if (failure := failure_of(host, rank)) is not None:
                by_job[rank.coordinator, rank.count or 0].append(failure)
    verdict = judge(hosts, limits)
    made = [
        _post_mortem(job, by_job[job.coordinator, job.count]) for job in verdict.jobs
    ]

    def recency(job: PostMortem) -> tuple[bool, float]:
        first = job.first or next(iter(job.consequences), None)
        return first is None, 0.0 if first is None else -first.time

    made.sort(key=recency)
    unknown = [
        failure
        for host in hosts
        for rank in host.unknown
        if (failure := failure_of(host, rank)) is not None
    ]
    unknown.sort(key=lambda failure: -failure.time)
    missing = not made or any(job.missing for job in made)
    return PostMortems(
        tuple(made), tuple(hosts), verdict.others, tuple(unknown) if missing else ()
    )


def _post_mortem(job: Job, found: Iterable[RankFailure]) -> PostMortem:
    failures = _latest(found)
    failed = {failure.rank.index: failure for failure in failures}
    again = [
        rank
        for rank in job.ranks
        if rank.responds
        and rank.index in failed
        and _began_after(rank, failed[rank.index])
    ]
    over = [rank for rank in job.ranks if rank.ended == FINISHED]
    alive = [rank for rank in job.ranks if rank.responds and rank.index not in failed]
    waiting = waiting_of(alive)
    reported = {rank.index for rank in job.ranks}
    return PostMortem(
        job.coordinator,
        job.count,
        job.hosts,
        job.ranks,
        *_ordered(failures),
        waiting.numbers,
        tuple(busy(apart_from(alive, waiting), waiting)),
        tuple(numbers_of(rank for rank in over if rank.index not in failed)),
        tuple(n for n in range(job.count) if n not in reported),
        tuple(numbers_of(again)),
        job.state is JobState.HUNG,
    )


def _began_after(rank: Rank, failure: RankFailure) -> bool:
    # In containers, processes have the same number each time.
    age = rank.since_seconds + rank.observed_seconds
    return rank.pid != failure.rank.pid or 0 < age < failure.host.asked - failure.last


def _latest(found: Iterable[RankFailure]) -> list[RankFailure]:
    latest: dict[int, RankFailure] = {}
    for failure in sorted(found, key=lambda failure: failure.time):
        latest[failure.rank.index or 0] = failure
    began = max(map(_began, latest.values()), default=0.0)
    return [failure for failure in latest.values() if failure.last >= began]


def _began(failure: RankFailure) -> float:
    """Return when the process of *failure* began to be observed, 0 if unknown."""
    rank, host = failure.rank, failure.host
    if rank.observed_seconds <= 0:
        return 0.0
    lived = rank.since_seconds + rank.observed_seconds
    return host.asked - lived - host.within


_Order: TypeAlias = tuple[
    RankFailure | None,
    tuple[RankFailure, ...],
    tuple[RankFailure, ...],
    tuple[RankFailure, ...],
]


def _ordered(found: Iterable[RankFailure]) -> _Order:
    """Return the first failure, and the others as `PostMortem` has them."""
    every = sorted(found, key=lambda failure: (failure.time, failure.rank.index or 0))
    end = min(
        [failure.last for failure in every if failure.of_peers], default=float("inf")
    )
    causes = [
        failure
        for failure in every
        if not failure.of_peers and failure.first <= end + _SLACK * failure.is_silent
    ]
    if not causes:
        # Nothing known has failed before those that speak of others.
        return None, (), (), tuple(every)
    first = _first(causes)
    rest = [failure for failure in every if failure is not first]
    together, later, consequences = [], [], []
    for failure in rest:
        if failure.of_peers or _follows(failure, first):
            consequences.append(failure)
        elif failure.meets(first):
            together.append(failure)
        else:
            later.append(failure)
    return first, tuple(together), tuple(later), tuple(consequences)


def _first(causes: Sequence[RankFailure]) -> RankFailure:
    outspoken = [failure for failure in causes if not failure.is_silent]
    silent = [failure for failure in causes if failure.is_silent]
    if outspoken:
        # JAX kills ranks after one has failed; before that, something else did.
        before = [failure for failure in silent if failure.last < outspoken[0].first]
        return before[0] if before else outspoken[0]
    same = [failure for failure in silent if failure.meets(silent[0])]
    # Without the coordinator, which rank 0 runs, JAX ends all others at once.
    return min(same, key=lambda failure: (failure.rank.index != 0, failure.time))


def _follows(failure: RankFailure, first: RankFailure) -> bool:
    """Return whether JAX ended the rank of *failure* because *first* had failed."""
    if failure.kind is not FailureKind.KILLED:
        return False
    return not first.is_silent or first.rank.index == 0 or not failure.meets(first)
