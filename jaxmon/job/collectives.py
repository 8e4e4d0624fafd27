"""
Collectives of a job as NCCL sees them: what its RAS knows of the ranks, and which ranks
come last to their collectives, by NCCL Inspector.

The kernel of a collective starts when its rank comes to it, and ends when all have come
and the data has. So the last one has the shortest kernels, those of the others wait for
it, and a low bus bandwidth says that a rank waits, not that it is slow (decision 56).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxmon.facts.host import (
    CollectiveTimes,
    CommunicatorRank,
    JobHost,
    LaggingRank,
    MissingProcess,
)
from jaxmon.facts.rank import Rank
from jaxmon.host.formats.layout import ago, counted, duration, share
from jaxmon.job.model import Job, JobState, LateRank, RasView
from jaxmon.job.words import advice_lines, chosen, points
from jaxmon.limits import Limits


_MOST_OF_RAS, _MOST_NAMED = 16, 3
_STATES = {"dead": "is gone for NCCL", "unresponsive": "does not respond to NCCL"}

# As for stragglers.
_DEVIATIONS = 5.0
_WINDOWS, _LEAST_RECORDED = 3, 10
_OLDEST_SECONDS, _MOST_SECONDS = 120.0, 1e6
_MOST_LATE, _MOST_SHOWN = 64, 3
_SIZES = {
    "under_1MiB": "under 1 MiB",
    "under_16MiB": "of 1 to 16 MiB",
    "under_256MiB": "of 16 to 256 MiB",
    "larger": "of 256 MiB and more",
}
_ADVICE = (
    "The kernels of a collective wait for the last rank: look at what its host does in "
    "between, and whether its GPU is throttled or shared."
)


def ras_view(ranks: Sequence[Rank], hosts: Sequence[JobHost]) -> RasView | None:
    """Return what the RAS of the job of *ranks* knows, `None` if no sidecar does."""
    indices = {id(rank) for rank in ranks}
    replies = [
        (host.nccl, host.target)
        for host in hosts
        if host.nccl is not None and any(id(rank) in indices for rank in host.ranks)
    ]
    if not replies:
        return None
    ras, target = min(replies, key=lambda reply: reply[0].age_seconds)
    placed = [
        (rank, host) for host in hosts for rank in host.ranks if id(rank) in indices
    ]
    return RasView(
        target,
        ras,
        tuple(
            (lagging, _rank(placed, lagging)) for lagging in ras.behind[:_MOST_OF_RAS]
        ),
        tuple(
            (process, _rank(placed, process)) for process in ras.missing[:_MOST_OF_RAS]
        ),
    )


def _rank(
    placed: Sequence[tuple[Rank, JobHost]], process: LaggingRank | MissingProcess
) -> Rank | None:
    """Return the rank that *process* is, by pid and address, if it is one."""
    some = [(rank, host) for rank, host in placed if rank.pid == process.pid]
    # Sidecars beside which RAS is not read report no addresses.
    there = [rank for rank, host in some if process.host in host.addresses]
    found = there or [rank for rank, host in some if not host.addresses]
    return found[0] if len(found) == 1 else None


def ras_text(job: Job) -> str:
    """
    Return what RAS knows of a job that waits or hangs: whom NCCL waits for; if no rank
    is suspect otherwise, also that it knows none, or is not read.
    """
    if job.state not in {JobState.HUNG, JobState.WAITING} or not job.waiting.numbers:
        return ""
    if job.nccl is None:
        on_gpus = any(
            rank.setup.get("platform") in {"gpu", "cuda"} for rank in job.ranks
        )
        if job.suspects or not on_gpus:
            return ""
        return (
            "no sidecar reads NCCL's RAS, which may know more; `jaxmon doctor` on a "
            "host says why"
        )
    clauses = [*_missing(job.nccl), *_lagging(job.nccl)]
    when = f"NCCL's RAS, {ago(job.nccl.ras.age_seconds)}"
    if clauses:
        return f"{when}: {'; '.join(clauses)}"
    if job.suspects or not job.nccl.is_healthy:
        return ""
    return (
        f"{when}: all {job.nccl.ras.processes.responding:,} processes respond, and no "
        "rank has launched fewer collectives than the others"
    )


def ras_document(view: RasView | None) -> dict[str, Any] | None:
    """Return it as JSON types."""
    if view is None:
        return None
    return {
        "target": view.target,
        **chosen(view.ras, "version age_seconds"),
        **chosen(view.ras.processes, "responding unresponsive dead"),
        "lagging": view.ras.lagging,
        "behind": [
            {**_identity(process, rank), "lag": process.lag}
            for process, rank in view.behind
        ],
        "missing": [
            {**_identity(process, rank), "state": process.state}
            for process, rank in view.missing
        ],
    }


def _identity(
    process: LaggingRank | MissingProcess, rank: Rank | None
) -> dict[str, Any]:
    index = None if rank is None else rank.index
    return {"rank": index, **chosen(process, "host pid")}


def _name(process: LaggingRank | MissingProcess, rank: Rank | None) -> str:
    return str(rank or f"pid {process.pid} on {process.host or 'an unknown host'}")


def _missing(view: RasView) -> Iterator[str]:
    for process, rank in view.missing[:_MOST_NAMED]:
        yield f"{_name(process, rank)} {_STATES.get(process.state, 'is missing')}"
    processes = view.ras.processes
    named = len(view.missing[:_MOST_NAMED])
    if (more := processes.unresponsive + processes.dead - named) > 0:
        yield f"{more:,} more processes are missing"


def _lagging(view: RasView) -> Iterator[str]:
    for lagging, rank in view.behind[:_MOST_NAMED]:
        yield f"{_name(lagging, rank)} is {counted(lagging.lag, 'collective')} behind"
    if (more := view.ras.lagging - len(view.behind[:_MOST_NAMED])) > 0:
        yield f"{more:,} more ranks are behind"


class _Timed(NamedTuple):
    rank: Rank
    collectives: CommunicatorRank
    seconds: tuple[float, ...]


def late_ranks(
    ranks: Sequence[Rank], hosts: Sequence[JobHost], limits: Limits
) -> tuple[LateRank, ...]:
    """Return which *ranks* come last to collectives, by *limits*, the worst first."""
    groups: defaultdict[tuple[str, int, str, str], list[_Timed]] = defaultdict(list)
    for timed in _timed(ranks, hosts):
        of = timed.collectives
        groups[of.communicator, of.ranks, of.collective, of.size].append(timed)
    worst: dict[int, LateRank] = {}
    for group in groups.values():
        for late in _late(group, limits.rank_slow_share):
            number = id(late.rank)
            if number not in worst or worst[number].ratio < late.ratio:
                worst[number] = late
    return tuple(sorted(worst.values(), key=lambda late: -late.ratio)[:_MOST_LATE])


def _timed(ranks: Sequence[Rank], hosts: Sequence[JobHost]) -> Iterator[_Timed]:
    of_the_job = {id(rank) for rank in ranks}
    for host in hosts:
        inspected = host.collectives
        if inspected is None or inspected.age_seconds > _OLDEST_SECONDS:
            continue
        seconds = inspected.seconds[:_WINDOWS]
        if len(seconds) < _WINDOWS or not all(map(_is_usual, seconds)):
            continue
        by_process = {
            (rank.host, rank.pid): rank for rank in host.ranks if id(rank) in of_the_job
        }
        for collectives in inspected.ranks:
            rank = by_process.get((collectives.host, collectives.pid))
            if rank is not None and _is_enough(collectives):
                yield _Timed(rank, collectives, seconds)


def _is_enough(collectives: CommunicatorRank) -> bool:
    windows = collectives.windows[:_WINDOWS]
    return len(windows) == _WINDOWS and all(
        window.recorded >= _LEAST_RECORDED and _is_usual(window.seconds)
        for window in windows
    )


def _is_usual(seconds: float) -> bool:
    return 0 < seconds < _MOST_SECONDS


def _late(group: Sequence[_Timed], least: float) -> Iterator[LateRank]:
    """
    Yield the ranks for which the median one waits: in each window for half of *least*
    of the time, and of all of it for *least*.
    """
    if len(group) < 2:  # noqa: PLR2004 - to compare
        return
    medians = [
        _median([timed.collectives.windows[place] for timed in group])
        for place in range(_WINDOWS)
    ]
    of_process = Counter(id(timed.rank) for timed in group)
    for timed in group:
        windows = timed.collectives.windows[:_WINDOWS]
        waits = []
        for window, usual, seconds in zip(windows, medians, timed.seconds, strict=True):
            less = usual.mean - window.mean
            if less <= _DEVIATIONS * math.sqrt(usual.variance + window.variance):
                break
            # As long as they take for the median rank, at the most.
            launched = min(window.launched, seconds / usual.mean)
            waits.append(less * launched)
            if waits[-1] < least / 2 * seconds:
                break
        else:
            if sum(waits) >= least * sum(timed.seconds):
                yield LateRank(
                    timed.rank,
                    timed.collectives,
                    of_process[id(timed.rank)] > 1,
                    sum(window.mean for window in windows) / _WINDOWS,
                    sum(window.mean for window in medians) / _WINDOWS,
                    sum(waits) / sum(timed.seconds),
                )


def _median(windows: Sequence[CollectiveTimes]) -> CollectiveTimes:
    """Return the window with the median time; of two, the longer one."""
    return sorted(windows, key=lambda window: window.mean)[len(windows) // 2]


def late_lines(found: Sequence[LateRank], width: int) -> Iterator[str]:
    """Yield who comes last, in lines of at most *width* columns."""
    yield from points([*map(_late_text, found)], _MOST_SHOWN, width)
    if found:
        yield from advice_lines(_ADVICE, width)


def _late_text(late: LateRank) -> str:
    of = late.collectives
    what = f"{of.collective} {_SIZES.get(of.size, '')}".rstrip()
    itself = f", as rank {of.rank} of NCCL" if late.several else ""
    return (
        f"NCCL Inspector: {late.rank} comes last to {what} among {of.ranks:,} ranks"
        f"{itself}: its kernels take {duration(late.mean)}, those of the median rank "
        f"{duration(late.median)}, which waits for it {share(late.ratio, 1.0)} of the "
        "time"
    )


def late_document(found: Sequence[LateRank]) -> list[dict[str, Any]]:
    """Return *found* as JSON types."""
    return [
        {
            "rank": late.rank.index,
            **chosen(late.rank, "host pid"),
            "verdict": _late_text(late),
            "action": _ADVICE,
            "communicator": late.collectives.communicator,
            "nccl_rank": late.collectives.rank,
            "nccl_ranks": late.collectives.ranks,
            **chosen(late.collectives, "collective size"),
            "seconds": late.mean,
            "median_seconds": late.median,
            "others_wait_ratio": late.ratio,
        }
        for late in found
    ]
