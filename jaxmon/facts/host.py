"""What the sidecar of a host reports of the jobs there: the content of ``/job``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxmon.facts import SCHEMA
from jaxmon.facts.ending import KILLED
from jaxmon.facts.rank import MOST_RANKS, Rank
from jaxmon.facts.reader import from_json, mapping, sifted
from jaxmon.facts.record import NOTHING, Fact
from jaxmon.facts.walltime import Standing
from jaxmon.host.formats import json_text
from jaxmon.host.formats.layout import clean


_MOST_ON_A_HOST = 1024
_MOST_OF_A_DEVICE = 100
_MOST_SETUPS, _MOST_NAMES, _LONGEST = 1024, 256, 128
# Of a `JobHost`, what is read as it is.
_REPORTED = ("xids", "gpus", "time", "nccl", "collectives", "addresses")


class XidError(Fact):
    """An Xid error that the driver of a GPU reported."""

    uuid: str = ""
    xid: str = ""
    age_seconds: float = 0.0


class ThrottledGpu(Fact):
    """Why a GPU is slower than it could be, by the driver."""

    uuid: str = ""
    throttled: tuple[str, ...] = ()


class RasProcesses(Fact):
    """How many processes RAS knows, by whether they respond to each other."""

    responding: int = 0
    unresponsive: int = 0
    dead: int = 0


class LaggingRank(Fact):
    """
    A rank that has launched fewer collectives than another one, while none launches
    more: how many fewer, address of its host, process, and its number for NCCL.
    """

    host: str = ""
    pid: int = -1
    rank: int = -1
    lag: int = 0


class MissingProcess(Fact):
    """A process that RAS does not reach, ``unresponsive`` or ``dead``."""

    host: str = ""
    pid: int = -1
    state: str = ""


class Ras(Fact):
    """
    What NCCL's RAS knows of a job.

    Attributes:
        version: of NCCL.
        age_seconds: of its reply.
        processes: of the job.
        stuck: communicators whose ranks are at different collectives, and stay there.
        lagging: ranks that are behind in one of them.
        behind: some of these.
        missing: some of the processes that it does not reach.
    """

    version: str = ""
    age_seconds: float = 0.0
    processes: RasProcesses = RasProcesses()
    stuck: int = 0
    lagging: int = 0
    behind: tuple[LaggingRank, ...] = ()
    missing: tuple[MissingProcess, ...] = ()


class CollectiveTimes(Fact):
    """
    Collectives of some seconds: how many were launched and recorded, and of these the
    sum of their seconds and of the squares.
    """

    launched: float = 0.0
    recorded: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """Return how long one took."""
        return self.seconds / self.recorded if self.recorded > 0 else 0.0

    @property
    def variance(self) -> float:
        """Return the variance of that mean."""
        if self.recorded <= 0:
            return 0.0
        spread = self.squares / self.recorded - self.mean * self.mean
        return max(spread, 0.0) / self.recorded


class CommunicatorRank(Fact):
    """
    A rank of a communicator, and its collectives of one kind and size class.

    Attributes:
        host: of its process *pid*.
        communicator: the same on all ranks.
        rank: of the communicator, which has *ranks*.
        windows: the newest first.
    """

    host: str = ""
    pid: int = -1
    communicator: str = ""
    rank: int = 0
    ranks: int = 0
    collective: str = ""
    size: str = ""
    windows: tuple[CollectiveTimes, ...] = ()


class InspectedCollectives(Fact):
    """
    What NCCL Inspector recorded on a host.

    Attributes:
        age_seconds: of all that.
        seconds: of each window, the newest first.
        ranks: those of its processes.
    """

    age_seconds: float = 0.0
    seconds: tuple[float, ...] = ()
    ranks: tuple[CommunicatorRank, ...] = ()


class JobHost(Fact):
    """
    What a sidecar reports.

    Attributes:
        target: its address.
        trouble: why there is nothing of it; empty if there is.
        ranks: the processes of its host that belong to a job.
        others: how many belong to none, or have not joined theirs yet.
        unknown: processes that failed, of which it is not known which rank of which job
            they were, if any.
        stacks: lines of the stacks of threads, by worker, innermost first.
        xids: the latest errors of its GPUs.
        gpus: those that are throttled now.
        runs: records of runs that its processes keep; see `jaxmon.facts.run`.
        time: when this was made, by the clock of the host; `None` if unknown.
        asked: the same by the clock of who asked.
        within: how much earlier or later that may have been, in seconds.
        nccl: what NCCL's RAS knows of its job; `None` if nothing.
        collectives: what NCCL Inspector recorded there; `None` if nothing.
        addresses: of the host, if RAS knows something.
        doubts: what of it is not read, and why, in clauses.
    """

    target: str = ""
    trouble: str = ""
    ranks: tuple[Rank, ...] = ()
    others: int = 0
    unknown: tuple[Rank, ...] = ()
    stacks: Mapping[str, tuple[tuple[str, ...], ...]] = NOTHING
    xids: tuple[XidError, ...] = ()
    gpus: tuple[ThrottledGpu, ...] = ()
    runs: tuple[Any, ...] = ()
    time: float | None = None
    asked: float = 0.0
    within: float = 0.0
    nccl: Ras | None = None
    collectives: InspectedCollectives | None = None
    addresses: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def clock_offset(self) -> float | None:
        """How much its clock is ahead of that of who asked; `None` if it may not be."""
        if self.time is None or not self.asked:
            return None
        offset = self.time - self.asked
        return offset if abs(offset) > self.within else None


def host(target: str, document: object) -> JobHost:
    """
    Return the content of the ``/job`` of the sidecar at *target*. Raises `ValueError`:
    it is something else, or of a later release.
    """
    given = mapping(document)
    documents = given.get("ranks")
    json_text.require_schema(given, SCHEMA, oldest=0)
    if not isinstance(documents, list):
        msg = "its response is not that of a sidecar's /job"
        raise ValueError(msg)  # noqa: TRY004 - a value of another origin, no mistake
    ranks: list[Rank] = []
    unknown: list[Rank] = []
    runs: list[object] = []
    doubts: list[str] = []
    others, stacks = 0, {}
    setups = {
        name: _setup(setup)
        for name, setup in list(mapping(given.get("setups")).items())[:_MOST_SETUPS]
    }
    for entry in map(mapping, documents[:_MOST_ON_A_HOST]):
        if run := entry.get("run"):
            runs.append(run)
        try:
            json_text.require_schema(entry, SCHEMA, oldest=0)
        except ValueError as error:
            doubts.append(f"worker {entry.get('worker')!s:.8}: {error}")
            continue
        rank, dropped = sifted(Rank, entry)
        if dropped:
            names = ", ".join(dropped)
            doubts.append(f"worker {rank.worker}: implausible values dropped: {names}")
        if _is_of_a_job(rank):
            setup = setups.get(str(entry.get("setup")), {})
            ranks.append(rank.replace(setup=setup))
            stacks[rank.worker] = _stacks(entry.get("stacks"))
            continue
        others += not rank.ended
        if rank.words.failed or (rank.ended == KILLED and not rank.words.stop):
            unknown.append(rank)
    reported = from_json(
        JobHost, {name: given[name] for name in _REPORTED if name in given}
    )
    return reported.replace(
        target=target,
        ranks=tuple(ranks),
        others=others,
        unknown=tuple(unknown),
        stacks=stacks,
        xids=reported.xids[:_MOST_OF_A_DEVICE],
        gpus=reported.gpus[:_MOST_OF_A_DEVICE],
        runs=tuple(runs),
        doubts=tuple(map(clean, doubts)),
    )


class _StackedThreads(Fact):
    """The content of ``/debug/stacks``."""

    threads: tuple[Standing, ...] = ()


def _is_of_a_job(rank: Rank) -> bool:
    if rank.index is None or rank.count is None:
        return False
    return 1 < rank.count <= MOST_RANKS and 0 <= rank.index < rank.count


def _setup(given: object) -> Mapping[str, str]:
    return {
        clean(str(name))[:_LONGEST]: clean(value)[:_LONGEST]
        for name, value in list(mapping(given).items())[:_MOST_NAMES]
        if isinstance(value, str)
    }


def _stacks(document: object) -> tuple[tuple[str, ...], ...]:
    threads = from_json(_StackedThreads, document).threads if document else ()
    return tuple(thread.stack for thread in threads if thread.stack)
