"""
Judges jobs: from what their ranks report to which of them hold the others up.

In a job of several processes all of them dispatch the same sequence of programs that
run on all devices. Such a program waits in its first collective until every process has
dispatched it. So in a hang most ranks wait for the device, and in truth for the rank
that does something else, or waits in another program. JAX dispatches ahead: that some
ranks have made a few more calls than others says nothing by itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from math import inf
from statistics import median

from jaxmon.facts.ending import CRASHED, FINISHED, KILLED, STOPPED, ProcessEnd
from jaxmon.facts.host import JobHost
from jaxmon.facts.rank import Rank
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.job.collectives import late_ranks, ras_view
from jaxmon.job.differences import deviating_ranks, repeated
from jaxmon.job.model import (
    ABSENT,
    ENDED,
    FAILED,
    MUTE,
    OVER,
    DeviceWait,
    Job,
    JobState,
    LateRank,
    SuspectKind,
    Suspects,
    Verdict,
)
from jaxmon.job.stragglers import find_stragglers
from jaxmon.job.waiting import (
    apart_from,
    deviating,
    elsewhere,
    grouped,
    is_local,
    numbers_of,
    starts,
    waiting_of,
)
from jaxmon.limits import Limits


# No pause that comes again and again is as long as a day.
_MOST_USUAL = 86_400.0
# Of a job that has found its rhythm.
_RHYTHM = 10

_TAKES_TIME = frozenset((SuspectKind.COMPILE, SuspectKind.ACTIVITY))
# Those that are known not to be there: all that all run waits for them.
_AWAITED = ENDED | MUTE
_KINDS = {
    "data_wait": SuspectKind.DATA,
    "compile": SuspectKind.COMPILE,
    "blocked": SuspectKind.BLOCKED,
    "idle": SuspectKind.IDLE,
}
_ENDS = {
    KILLED: SuspectKind.KILLED,
    CRASHED: SuspectKind.CRASHED,
    FINISHED: SuspectKind.FINISHED,
    STOPPED: SuspectKind.TERMINATED,
}
# What a process says when others are gone: seen in jobs with gloo, and known of JAX's
# coordination service, of gRPC and of NCCL.
_OF_PEERS = (
    r"\bgloo \S+ failed|gloo/transport|PollForError|polled an error"
    r"|coordination[ _]?service|JAX distributed service"
    r"|another task (died|is unhealthy)|tasks? (is|are) unhealthy|heartbeat timeout"
    r"|barrier (timed out|failed|has been aborted)|ncclRemoteError|ncclSystemError"
    r"|\bnccl\b.{0,200}(unhandled system error|timed? ?out|abort|remote)"
    r"|collective (operation )?timed? ?out"
    r"|rendezvous.{0,200}(timed? ?out|stuck|participants)"
)
# Programs have connections of their own; those of the runtime have a status before.
_OF_RUNTIME = (
    r"\b(UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|CANCELLED|DEADLINE_EXCEEDED"
    r"|FAILED_PRECONDITION): .*("
    r"connection (was )?(reset|refused|aborted|closed)|broken pipe|socket closed"
    r"|failed to connect|heartbeat|preempt|peer|barrier)"
)

_ORDER = {kind: order for order, kind in enumerate(SuspectKind)}
_WORST = {state: order for order, state in enumerate(JobState)}


def judge(hosts: Sequence[JobHost], limits: Limits | None = None) -> Verdict:
    """Return what is found out about jobs, in a time that grows with their ranks."""
    limits = limits or Limits()
    silent = tuple((host.target, host.trouble) for host in hosts if host.trouble)
    found: defaultdict[tuple[str, int], list[Rank]] = defaultdict(list)
    places: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for host in hosts:
        for rank in host.ranks:
            key = rank.coordinator, rank.count or 0
            found[key].append(rank)
            places[key].add(host.target)
    jobs = [
        _job(key, ranks, hosts, places[key], limits) for key, ranks in found.items()
    ]
    jobs.sort(key=lambda job: (-_WORST[job.state], job.coordinator, job.count))
    answered = len(hosts) - len(silent)
    return Verdict(
        tuple(jobs),
        silent,
        answered,
        sum(host.others for host in hosts),
        sum(len(host.unknown) for host in hosts),
        tuple((host.target, doubt) for host in hosts for doubt in host.doubts),
    )


def _job(
    key: tuple[str, int],
    reported: Iterable[Rank],
    hosts: Sequence[JobHost],
    places: Collection[str],
    limits: Limits,
) -> Job:
    coordinator, count = key
    unheard = any(host.trouble for host in hosts)
    ranks = _one_of_each(_of_one_run(reported))
    alive = [rank for rank in ranks if rank.responds]
    seconds = _since_progress(alive or ranks)
    waiting = waiting_of(alive)
    suspects = _suspects(ranks, alive, count, waiting, unheard=unheard)
    # Those that wait in another program or place are suspects.
    other = {number for group in suspects for number in group.numbers}
    numbers = tuple(number for number in waiting.numbers if number not in other)
    waiting = waiting._replace(numbers=numbers)
    limit = _limit(alive, suspects, waiting, limits)
    state = _state(alive, seconds, limit, suspects, limits)
    slowness = None
    late: tuple[LateRank, ...] = ()
    if state is JobState.PROGRESSING:
        late = late_ranks(alive, hosts, limits)
        slowness = find_stragglers(
            alive, [host for host in hosts if host.target in places], limits
        )
        # What a rank does at one moment says nothing.
        suspects = tuple(group for group in suspects if group.kind in ABSENT)
        waiting = DeviceWait()
    stalled = state in {JobState.HUNG, JobState.WAITING} and not suspects
    rest = apart_from(alive, waiting) if stalled else []
    return Job(
        coordinator,
        count,
        len(places),
        state,
        seconds,
        limit,
        waiting,
        suspects,
        tuple(busy(rest, waiting)),
        tuple(
            numbers_of(
                rank
                for rank in alive
                if (rank.starved_ratio or 0.0) >= limits.rank_starved_share
            )
        ),
        tuple(ranks),
        slowness,
        ras_view(ranks, hosts),
        late,
        deviating_ranks(ranks),
        repeated(ranks, limits),
    )


def _of_one_run(reported: Iterable[Rank]) -> list[Rank]:
    """
    Return those of the latest run, in which others were when they made their calls. A
    run after another may have its address, and a rank that made none may have waited.
    """
    found: list[Rank] = []
    began = 0.0
    for rank in sorted(reported, key=_over):
        over = _over(rank)
        called = rank.words.calls or rank.words.steps or _progress_made(rank, 0)
        if found and over > began and called:
            continue
        found.append(rank)
        seconds = rank.observed_seconds or rank.words.observed_seconds or inf
        began = max(began, seconds + (rank.since_seconds or over))
    return found


def _over(rank: Rank) -> float:
    """Return how many seconds ago *rank* had ended, as far as is known; else 0."""
    ages = rank.ended_seconds, rank.closed_seconds, rank.words.age_seconds
    return max([age or 0.0 for age in ages]) if rank.ended else 0.0


def _one_of_each(reported: Iterable[Rank]) -> list[Rank]:
    """Return the latest rank of each number: a restarted job may have its address."""

    def recency(rank: Rank) -> tuple[bool, bool, float]:
        return rank.responds, not rank.ended, -rank.since_seconds

    found = grouped(reported, lambda rank: rank.index or 0)
    return [max(found[number], key=recency) for number in sorted(found)]


def _since_progress(ranks: Sequence[Rank]) -> float | None:
    # A rank of which it is not known what it runs together with others may call
    # functions of its own.
    knowing = [rank for rank in ranks if rank.functions] or ranks
    ages = [rank.age for rank in knowing if rank.age is not None]
    # At first, what they wait for.
    begun = [rank.now.seconds + rank.since_seconds for rank in ranks if starts(rank)]
    return min(ages or begun, default=None)


def _limit(
    alive: Sequence[Rank],
    suspects: Sequence[Suspects],
    waiting: DeviceWait,
    limits: Limits,
) -> float:
    after = seconds_in(limits.rank_stuck_after)
    kinds = {group.kind for group in suspects}
    at_once = min(after, seconds_in(limits.rank_gone_after))
    if kinds & (FAILED | {SuspectKind.STOPPED}):
        return at_once
    if not alive:
        return after
    if SuspectKind.FINISHED in kinds and waiting.numbers:
        after = at_once  # but for the last step, which may be running
    limit = max(after, limits.rank_stuck_times * min(_usual(alive), _MOST_USUAL))
    slow = any(map(starts, alive))
    if slow or median([_progress_made(rank) for rank in alive]) < _RHYTHM:
        limit = max(limit, seconds_in(limits.rank_stuck_first))
    if kinds and kinds <= _TAKES_TIME:
        limit = max(limit, seconds_in(limits.stuck_after))
    return limit


def _progress_made(rank: Rank, default: int = _RHYTHM) -> int:
    calls = [
        function.calls for function in rank.functions if function.calls is not None
    ]
    progress = [*calls, *(loop.steps for loop in rank.loops)]
    return max(progress, default=default)


def _state(
    alive: Sequence[Rank],
    seconds: float | None,
    limit: float,
    suspects: Sequence[Suspects],
    limits: Limits,
) -> JobState:
    if not alive and {group.kind for group in suspects} <= OVER:
        return JobState.ENDED
    if seconds is None:
        return JobState.UNKNOWN
    if seconds >= limit:
        return JobState.HUNG
    started = not (alive and all(map(starts, alive)))
    late: float = seconds_in(limits.rank_stuck_after)
    least = seconds_in(limits.rank_gone_after)
    if usual := _usual(alive):
        late = min(late, max(least, limits.rank_stuck_times * usual))
    return JobState.PROGRESSING if seconds < late and started else JobState.WAITING


def _usual(alive: Sequence[Rank]) -> float:
    return median([max(rank.pace.usual_seconds, 0.0) for rank in alive] or [0.0])


def _suspects(
    ranks: Sequence[Rank],
    alive: Sequence[Rank],
    count: int,
    waiting: DeviceWait,
    *,
    unheard: bool,
) -> tuple[Suspects, ...]:
    found: list[Suspects] = []
    for kind, some in grouped(ranks, _absence).items():
        if kind is not None:
            found += _alike(kind, some, waiting)
    reported = {rank.index for rank in ranks}
    missing = tuple(number for number in range(count) if number not in reported)
    if missing:
        found.append(
            Suspects(
                SuspectKind.UNREACHABLE if unheard else SuspectKind.MISSING, missing
            )
        )
    others = apart_from(alive, waiting)
    behind = [rank for rank in others if not _has_dispatched(rank, waiting)]
    apart = busy(behind, waiting) or _apart(alive, waiting)
    if _AWAITED & {group.kind for group in found}:
        # Then a rank may well read a result that never comes.
        apart = [group for group in apart if group.kind is not SuspectKind.ELSEWHERE]
    found += apart
    found.sort(
        key=lambda group: (_group(group.kind), len(group.numbers), group.numbers)
    )
    return tuple(found)


def busy(ranks: Iterable[Rank], waiting: DeviceWait) -> list[Suspects]:
    """Return what *ranks* do that do not wait for the device, by kind and place."""
    return [
        alike
        for kind, some in grouped(ranks, _kind).items()
        for alike in _alike(kind, some, waiting)
    ]


def _apart(alive: Sequence[Rank], waiting: DeviceWait) -> Iterable[Suspects]:
    """Yield those that wait in another program than most, or else on another line."""
    found = deviating(alive, waiting.function)
    for function, some in grouped(found, lambda of: of[1]).items():
        ranks = [rank for rank, _ in some]
        for alike in _alike(SuspectKind.PROGRAM, ranks, waiting):
            yield alike._replace(function=function)
    if not found:
        yield from _alike(SuspectKind.ELSEWHERE, elsewhere(alive, waiting), waiting)


def _group(kind: SuspectKind) -> int:
    """Return how likely it is that the others wait for ranks of this *kind*."""
    if kind is SuspectKind.LOST:
        return len(SuspectKind)
    # Of those that are there, the few are suspect, whatever they do.
    return min(_ORDER[kind], _ORDER[SuspectKind.COMPILE])


def _absence(rank: Rank) -> SuspectKind | None:
    if rank.ended:
        return _end(rank)
    if rank.stopped:
        return SuspectKind.STOPPED
    return SuspectKind.SILENT if rank.trouble else None


def _end(rank: Rank) -> SuspectKind:
    if rank.words.stop:  # as is known only since
        return SuspectKind.TERMINATED
    kind = _ENDS.get(rank.ended, SuspectKind.CRASHED)
    # Someone may have called the hook for uncaught exceptions.
    if kind is SuspectKind.FINISHED and rank.words.kind == "exception":
        kind = SuspectKind.CRASHED
    # With another code than 0, unless it raised SystemExit itself.
    if kind is not SuspectKind.KILLED and rank.words.kind == "exit":
        kind = SuspectKind.EXITED
    failed = kind in {SuspectKind.CRASHED, SuspectKind.EXITED}
    return SuspectKind.LOST if failed and is_of_peers(rank.words) else kind


def is_of_peers(words: ProcessEnd) -> bool:
    """Return whether *words* say that another process is gone, or unreachable."""
    messages = (words.message, *(cause.message for cause in words.causes))
    return any(
        re.search(pattern, message, re.IGNORECASE)
        for message in messages
        for pattern in (_OF_PEERS, _OF_RUNTIME)
    )


def _has_dispatched(rank: Rank, waiting: DeviceWait) -> bool:
    """
    Return whether *rank* has made the call in which most others wait, and its program
    may run; a barrier is not counted, so only a call after it shows that.
    """
    if rank.now.callback:
        return False
    calls = rank.calls(waiting.function) if waiting.function else None
    if calls is None or waiting.call is None:
        return False
    return calls > waiting.call if waiting.barrier else calls >= waiting.call


def _kind(rank: Rank) -> SuspectKind:
    now = rank.now
    if now.state == "compile":
        return SuspectKind.COMPILE
    if now.activity:
        return SuspectKind.ACTIVITY
    if rank.now.callback:
        return SuspectKind.CALLBACK
    if is_local(rank):
        return SuspectKind.LOCAL
    if now.lock and now.state in {"blocked", "python", "idle"}:
        return SuspectKind.LOCK
    return _KINDS.get(now.state, SuspectKind.CODE)


def _alike(
    kind: SuspectKind, ranks: Sequence[Rank], waiting: DeviceWait
) -> Iterable[Suspects]:

    def line(rank: Rank) -> tuple[str, str]:
        # What a process did before it was gone is not what the others wait for.
        there = kind not in ABSENT
        return (rank.now.place, _function(rank, kind)) if there else ("", "")

    for (place, function), some in grouped(ranks, line).items():
        # A function of some devices only need not be called by all.
        made = [rank.calls(waiting.function) for rank in some if waiting.function]
        calls = {number or (None if waiting.partial else number) for number in made}
        seconds = [_seconds(rank, kind) for rank in some]
        yield Suspects(
            kind,
            tuple(numbers_of(some)),
            tuple(some),
            place,
            function,
            min([age for age in seconds if age is not None], default=None),
            next(iter(calls)) if len(calls) == 1 else None,
        )


def _function(rank: Rank, kind: SuspectKind) -> str:
    if kind is SuspectKind.COMPILE:
        return rank.compiling.function
    if kind is SuspectKind.ACTIVITY:
        return rank.now.activity
    if kind is SuspectKind.LOCAL:
        return rank.now.function
    if kind is SuspectKind.ELSEWHERE:
        return rank.now.barrier or rank.now.function
    start = f"{rank.now.place} in "
    found = (
        line.removeprefix(start) for line in rank.now.stack if line.startswith(start)
    )
    return next(found, "")


def _seconds(rank: Rank, kind: SuspectKind) -> float | None:
    if kind in ENDED:
        return rank.ended_seconds
    if kind in MUTE:
        return rank.since_seconds
    if kind is SuspectKind.COMPILE and rank.compiling.count:
        return max(rank.compiling.seconds, 0.0) + rank.since_seconds
    # What waits for data may do so on several lines, one after the other.
    return rank.age if rank.age is not None else rank.now.seconds + rank.since_seconds
