"""
Judges jobs: from what their ranks report to which of them hold the others up.

In a job of several processes all of them dispatch the same sequence of programs that
run on all devices. Such a program waits in its first collective until every process has
dispatched it. So in a hang most ranks wait for the device, and whoever does something
else, or waits in another program, is whom they wait for. JAX dispatches ahead: that
some ranks have made a few more calls than others says nothing by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from statistics import median

from jaxmon.facts.ending import CRASHED, FINISHED, KILLED
from jaxmon.formats.durations import seconds as seconds_in
from jaxmon.limits import Limits
from jaxmon.report.job import latecomers, stragglers
from jaxmon.report.job.failures import is_of_peers
from jaxmon.report.job.model import FAILED, Job, Kind, State, Suspects, Verdict, Waiting
from jaxmon.report.job.nccl import seen
from jaxmon.report.job.places import (
    apart_from,
    elsewhere,
    is_local,
    numbers_of,
    starts,
    waiting_of,
)
from jaxmon.report.job.programs import deviating
from jaxmon.report.job.records import Host, Rank


# No pause that comes again and again is as long as a day.
_MOST_USUAL = 86_400.0
# Of a job that has found its rhythm.
_RHYTHM = 10
_STARVED = 0.5

_TAKES_TIME = frozenset((Kind.COMPILE, Kind.ACTIVITY))
_ABSENT = frozenset((*FAILED, Kind.STOPPED))
_OVER = frozenset((*FAILED, Kind.FINISHED, Kind.GONE))
# Of ranks that are not there, whether the job gets on or not.
_ANYWAY = (*_OVER, Kind.STOPPED, Kind.SILENT, Kind.UNSEEN)
# Of those that are known not to be there: all that all run waits for them.
_AWAITED = frozenset((*FAILED, Kind.FINISHED, Kind.STOPPED, Kind.SILENT))
_KINDS = {
    "data_wait": Kind.DATA,
    "compile": Kind.COMPILE,
    "blocked": Kind.BLOCKED,
    "idle": Kind.IDLE,
}
_ENDS = {KILLED: Kind.KILLED, CRASHED: Kind.CRASHED, FINISHED: Kind.FINISHED}
_ORDER = {kind: order for order, kind in enumerate(Kind)}
_WORST = {state: order for order, state in enumerate(State)}


def judge(hosts: Sequence[Host], limits: Limits | None = None) -> Verdict:
    """
    Return what is found out about the jobs of *hosts*, in a time that grows with the
    number of ranks, and no faster.

    Args:
        hosts: what their sidecars report.
        limits: by which they are judged; the defaults if `None`.
    """
    limits = limits or Limits()
    silent = tuple((one.target, one.trouble) for one in hosts if one.trouble)
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
    if any(one.nccl is not None for one in hosts):
        jobs = [replace(job, nccl=seen(job.ranks, hosts)) for job in jobs]
    jobs.sort(key=lambda job: (-_WORST[job.state], job.coordinator, job.count))
    answered = len(hosts) - len(silent)
    return Verdict(
        tuple(jobs),
        silent,
        answered,
        sum(one.others for one in hosts),
        sum(len(one.unknown) for one in hosts),
        tuple((one.target, doubt) for one in hosts for doubt in one.doubts),
    )


def _job(
    key: tuple[str, int],
    reported: Iterable[Rank],
    hosts: Sequence[Host],
    places: Collection[str],
    limits: Limits,
) -> Job:
    coordinator, count = key
    unheard = any(one.trouble for one in hosts)
    ranks = _one_of_each(reported)
    alive = [one for one in ranks if one.responds]
    seconds = _since_progress(alive or ranks)
    waiting = waiting_of(alive)
    suspects = _suspects(ranks, alive, count, waiting, unheard=unheard)
    waiting = _without(waiting, suspects)
    limit = _limit(alive, suspects, limits)
    state = _state(alive, seconds, limit, suspects, limits)
    slowness = None
    late: tuple[latecomers.Latecomer, ...] = ()
    if state is State.PROGRESSING:
        late = latecomers.find(alive, hosts)
        slowness = stragglers.find(
            alive, [one for one in hosts if one.target in places]
        )
        # What a rank does at one moment says nothing.
        suspects = tuple(one for one in suspects if one.kind in _ANYWAY)
        waiting = Waiting()
    stalled = state in {State.HUNG, State.WAITING} and not suspects
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
            numbers_of(one for one in alive if (one.starved_ratio or 0.0) >= _STARVED)
        ),
        tuple(ranks),
        slowness,
        latecomers=late,
    )


def _one_of_each(reported: Iterable[Rank]) -> list[Rank]:
    """
    Return the ranks by number, of several with one number the latest: a job that was
    restarted may have the address of the one before.
    """
    found: dict[int, Rank] = {}
    for one in reported:
        number = one.index or 0
        other = found.get(number)
        if other is None or _recency(one) > _recency(other):
            found[number] = one
    return [found[number] for number in sorted(found)]


def _recency(rank: Rank) -> tuple[bool, bool, float]:
    return rank.responds, not rank.ended, -rank.since_seconds


def _since_progress(ranks: Sequence[Rank]) -> float | None:
    """Return the seconds since any rank got on, `None` if that is unknown."""
    # A rank of which it is not known what it runs together with others may call
    # functions of its own.
    knowing = [one for one in ranks if one.functions] or ranks
    ages = [one.age for one in knowing if one.age is not None]
    # At first, what they wait for.
    begun = [one.now.seconds + one.since_seconds for one in ranks if starts(one)]
    return min(ages or begun, default=None)


def _limit(
    alive: Sequence[Rank], suspects: Sequence[Suspects], limits: Limits
) -> float:
    """Return from how many seconds without progress a job is called hung."""
    after = seconds_in(limits.rank_stuck_after)
    kinds = {one.kind for one in suspects}
    if kinds & _ABSENT:
        return min(after, seconds_in(limits.rank_gone_after))
    if not alive:
        return after
    usual = median([max(one.pace.usual_seconds, 0.0) for one in alive])
    limit = max(after, limits.rank_stuck_times * min(usual, _MOST_USUAL))
    slow = any(map(starts, alive))
    if slow or median([_got_on(one) for one in alive]) < _RHYTHM:
        limit = max(limit, seconds_in(limits.rank_stuck_first))
    if kinds and kinds <= _TAKES_TIME:
        limit = max(limit, seconds_in(limits.stuck_after))
    return limit


def _got_on(rank: Rank) -> int:
    """Return how often *rank* has got on; often, if that is not counted."""
    calls = [one.calls for one in rank.functions if one.calls is not None]
    known = [*calls, *(one.steps for one in rank.loops)]
    return max(known, default=_RHYTHM)


def _state(
    alive: Sequence[Rank],
    seconds: float | None,
    limit: float,
    suspects: Sequence[Suspects],
    limits: Limits,
) -> State:
    if not alive and {one.kind for one in suspects} <= _OVER:
        return State.ENDED
    if seconds is None:
        return State.UNKNOWN
    if seconds >= limit:
        return State.HUNG
    started = not (alive and all(map(starts, alive)))
    late = seconds >= seconds_in(limits.rank_stuck_after)
    return State.PROGRESSING if not late and started else State.WAITING


def _without(waiting: Waiting, suspects: Iterable[Suspects]) -> Waiting:
    """Return *waiting* without those that wait in another program or place."""
    other = {number for one in suspects for number in one.numbers}
    return replace(waiting, numbers=tuple(n for n in waiting.numbers if n not in other))


def _suspects(
    ranks: Sequence[Rank],
    alive: Sequence[Rank],
    count: int,
    waiting: Waiting,
    *,
    unheard: bool,
) -> tuple[Suspects, ...]:
    """Return the ranks that the others wait for, the likeliest first."""
    found: list[Suspects] = []
    for kind, some in _absent(ranks).items():
        found += _alike(kind, some, waiting)
    known = {one.index for one in ranks}
    missing = tuple(number for number in range(count) if number not in known)
    if missing:
        found.append(Suspects(Kind.UNSEEN if unheard else Kind.GONE, missing))
    others = apart_from(alive, waiting)
    behind = [one for one in others if not _is_ahead(one, waiting)]
    apart = busy(behind, waiting) or _apart(alive, waiting)
    if _AWAITED & {one.kind for one in found}:
        # Then a rank may well read a result that never comes.
        apart = [one for one in apart if one.kind is not Kind.ELSEWHERE]
    found += apart
    found.sort(key=lambda one: (_group(one.kind), len(one.numbers), one.numbers))
    return tuple(found)


def busy(ranks: Iterable[Rank], waiting: Waiting) -> list[Suspects]:
    """Return what *ranks* do that do not wait for the device, by kind and place."""
    kinds: defaultdict[Kind, list[Rank]] = defaultdict(list)
    for one in ranks:
        kinds[_kind(one)].append(one)
    return [
        alike for kind, some in kinds.items() for alike in _alike(kind, some, waiting)
    ]


def _apart(alive: Sequence[Rank], waiting: Waiting) -> Iterable[Suspects]:
    """Yield those that wait in another program than most, or else on another line."""
    programs: defaultdict[str, list[Rank]] = defaultdict(list)
    for one, function in deviating(alive, waiting.function):
        programs[function].append(one)
    for function, some in programs.items():
        for alike in _alike(Kind.PROGRAM, some, waiting):
            yield replace(alike, function=function)
    if not programs:
        yield from _alike(Kind.ELSEWHERE, elsewhere(alive, waiting), waiting)


def _group(kind: Kind) -> int:
    """Return how likely it is that the others wait for ranks of this *kind*."""
    if kind is Kind.LOST:
        return len(Kind)
    # Of those that are there, the few are suspect, whatever they do.
    return min(_ORDER[kind], _ORDER[Kind.COMPILE])


def _absent(ranks: Iterable[Rank]) -> dict[Kind, list[Rank]]:
    found: defaultdict[Kind, list[Rank]] = defaultdict(list)
    for one in ranks:
        if one.ended:
            found[_end(one)].append(one)
        elif one.stopped:
            found[Kind.STOPPED].append(one)
        elif one.trouble:
            found[Kind.SILENT].append(one)
    return dict(found)


def _end(rank: Rank) -> Kind:
    """Return how *rank* has ended."""
    kind = _ENDS.get(rank.ended, Kind.CRASHED)
    # Ctrl-C ends a program in order, but not as one of a job should end.
    if kind is Kind.FINISHED and rank.words.kind == "exception":
        kind = Kind.CRASHED
    # With another code than 0, unless it raised SystemExit itself.
    if kind is not Kind.KILLED and rank.words.kind == "exit":
        kind = Kind.EXITED
    failed = kind in {Kind.CRASHED, Kind.EXITED}
    return Kind.LOST if failed and is_of_peers(rank.words) else kind


def _is_ahead(rank: Rank, waiting: Waiting) -> bool:
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


def _kind(rank: Rank) -> Kind:
    now = rank.now
    if now.state == "compile":
        return Kind.COMPILE
    if now.activity:
        return Kind.ACTIVITY
    if rank.now.callback:
        return Kind.CALLBACK
    if is_local(rank):
        return Kind.LOCAL
    if now.lock and now.state in {"blocked", "python", "idle"}:
        return Kind.LOCK
    return _KINDS.get(now.state, Kind.CODE)


def _alike(kind: Kind, ranks: Sequence[Rank], waiting: Waiting) -> Iterable[Suspects]:
    """Yield *ranks* by what they do and where."""
    groups: defaultdict[tuple[str, str], list[Rank]] = defaultdict(list)
    for one in ranks:
        # What a process did before it was gone is not what the others wait for.
        there = kind not in _ANYWAY
        key = (one.now.place, _function(one, kind)) if there else ("", "")
        groups[key].append(one)
    for (place, function), some in groups.items():
        calls = {_calls(one, waiting) for one in some if waiting.function}
        seconds = [_seconds(one, kind) for one in some]
        yield Suspects(
            kind,
            tuple(numbers_of(some)),
            tuple(some),
            place,
            function,
            min([one for one in seconds if one is not None], default=None),
            next(iter(calls)) if len(calls) == 1 else None,
        )


def _calls(rank: Rank, waiting: Waiting) -> int | None:
    """Return how often *rank* has made the call, `None` if it need not make it."""
    calls = rank.calls(waiting.function)
    return calls or (None if waiting.partial else calls)


def _function(rank: Rank, kind: Kind) -> str:
    """Return the function in which *rank* is: a jitted one, or that of its line."""
    if kind is Kind.COMPILE:
        return rank.compiling.function
    if kind is Kind.ACTIVITY:
        return rank.now.activity
    if kind is Kind.LOCAL:
        return rank.now.function
    if kind is Kind.ELSEWHERE:
        return rank.now.barrier or rank.now.function
    start = f"{rank.now.place} in "
    found = (one.removeprefix(start) for one in rank.now.stack if one.startswith(start))
    return next(found, "")


def _seconds(rank: Rank, kind: Kind) -> float | None:
    """Return for how long *rank* has been as it is."""
    if kind in {*FAILED, Kind.FINISHED}:
        return rank.ended_seconds
    if kind in {Kind.STOPPED, Kind.SILENT}:
        return rank.since_seconds
    if kind is Kind.COMPILE and rank.compiling.count:
        return max(rank.compiling.seconds, 0.0) + rank.since_seconds
    # What waits for data may do so on several lines, one after the other.
    return rank.age if rank.age is not None else rank.now.seconds + rank.since_seconds
