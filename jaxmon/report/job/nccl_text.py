"""The words for what NCCL's RAS knows of a job that does not get on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxmon.formats.layout import INDENT, ago, counted, wrapped
from jaxmon.report.job.model import Job, State
from jaxmon.report.job.nccl import Seen
from jaxmon.report.job.records import Rank


_MOST_NAMED = 3
_STATES = {"dead": "is gone for NCCL", "unresponsive": "does not respond to NCCL"}


def lines(job: Job, width: int) -> Iterator[str]:
    """Yield what it knows, in lines of at most *width* columns."""
    if text := said(job):
        yield from wrapped(text, width, first=INDENT, rest=INDENT * 2)


def said(job: Job) -> str:
    """
    Return what it knows of a job that waits or hangs: whom NCCL waits for; if no rank
    is suspect otherwise, also that it knows none, or is not read.
    """
    if job.state not in {State.HUNG, State.WAITING} or not job.waiting.numbers:
        return ""
    if job.nccl is None:
        on_gpus = any(one.setup.get("platform") in {"gpu", "cuda"} for one in job.ranks)
        if job.suspects or not on_gpus:
            return ""
        return (
            "no sidecar reads NCCL's RAS, which may know more; `jaxmon doctor` on a "
            "host says why"
        )
    found = [*_missing(job.nccl), *_behind(job.nccl)]
    when = f"NCCL's RAS, {ago(job.nccl.ras.age_seconds)}"
    if found:
        return f"{when}: {'; '.join(found)}"
    if job.suspects or not job.nccl.is_healthy:
        return ""
    return (
        f"{when}: all {job.nccl.ras.processes.responding:,} processes respond, and no "
        "rank has launched fewer collectives than the others"
    )


def document(seen: Seen | None) -> dict[str, Any] | None:
    """Return it as JSON types."""
    if seen is None:
        return None
    return {
        "target": seen.target,
        "version": seen.ras.version,
        "age_seconds": seen.ras.age_seconds,
        "responding": seen.ras.processes.responding,
        "unresponsive": seen.ras.processes.unresponsive,
        "dead": seen.ras.processes.dead,
        "lagging": seen.ras.lagging,
        "behind": [
            {"rank": _index(rank), "host": one.host, "pid": one.pid, "lag": one.lag}
            for one, rank in seen.behind
        ],
        "missing": [
            {"rank": _index(rank), "host": one.host, "pid": one.pid, "state": one.state}
            for one, rank in seen.missing
        ],
    }


def _missing(seen: Seen) -> Iterator[str]:
    for one, rank in seen.missing[:_MOST_NAMED]:
        yield f"{_who(rank, one.host, one.pid)} {_STATES.get(one.state, 'is missing')}"
    known = seen.ras.processes
    more = known.unresponsive + known.dead - len(seen.missing[:_MOST_NAMED])
    if more > 0:
        yield f"{more:,} more processes are missing"


def _behind(seen: Seen) -> Iterator[str]:
    for one, rank in seen.behind[:_MOST_NAMED]:
        lag = counted(one.lag, "collective")
        yield f"{_who(rank, one.host, one.pid)} is {lag} behind"
    if (more := seen.ras.lagging - len(seen.behind[:_MOST_NAMED])) > 0:
        yield f"{more:,} more ranks are behind"


def _who(rank: Rank | None, host: str, pid: int) -> str:
    if rank is not None:
        return f"rank {rank.index} ({rank.host}, pid {rank.pid})"
    return f"pid {pid} on {host or 'an unknown host'}"


def _index(rank: Rank | None) -> int | None:
    return None if rank is None else rank.index
