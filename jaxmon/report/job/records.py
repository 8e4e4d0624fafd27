"""What the ranks of a job and their sidecars report, as typed data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jaxmon.facts.ending import KILLED, ProcessEnd
from jaxmon.facts.reader import from_json, mapping, sifted
from jaxmon.facts.walltime import Now
from jaxmon.formats import schema
from jaxmon.formats.layout import clean
from jaxmon.report.job import SCHEMA, course
from jaxmon.report.job.inspector import Inspected
from jaxmon.report.job.ras import Ras
from jaxmon.report.job.setups import Setups


MOST_RANKS = 1_000_000
"""No job has as many; a larger one is a mistake, or a lie."""

_MOST_FUNCTIONS = 64
_MOST_ON_A_HOST = 1024
_MOST_XIDS = 100
_DIGITS = 7


@dataclass(frozen=True, slots=True)
class Function:
    """
    A function whose program runs on devices of several processes.

    Attributes:
        calls: so far, `None` if they are not counted.
        fingerprint: of its latest program; empty if unknown.
        devices: how many that runs on.
        programs: how many it has had that differ; `None` if unknown.
        compiled: how often it was compiled.
        loaded: how often it was loaded from the persistent cache instead.
        compile_seconds: what compiling it has taken.
    """

    name: str = ""
    calls: int | None = None
    fingerprint: str = ""
    devices: int = 0
    programs: int | None = None
    compiled: int = 0
    loaded: int = 0
    compile_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that the program marks: its steps, and the age of the latest."""

    name: str = ""
    steps: int = 0
    age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds since the latest call of these functions, and a usual pause of them."""

    age_seconds: float | None = None
    usual_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Compiling:
    """Compiles in progress: their number, and age and function of the oldest."""

    count: int = 0
    seconds: float = 0.0
    function: str = ""


@dataclass(frozen=True, slots=True)
class Xid:
    """An Xid error that the driver of a GPU reported."""

    uuid: str = ""
    xid: str = ""
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Place:
    """A line where a rank was lately, in what state, and for how much of the time."""

    state: str = ""
    place: str = ""
    activity: str = ""
    ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """Why a GPU is slower than it could be, if it is, by the driver."""

    uuid: str = ""
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rank:
    """
    A process of a job: the content of ``/debug/rank``, and what its sidecar adds.

    Attributes:
        index: its number in the job; `None` if it has joined none.
        count: of the processes of the job.
        coordinator: address of the coordinator; empty if unknown.
        job: what its scheduler calls the job; empty if unknown.
        attempt: how often that has restarted it; empty if unknown.
        now: what it is doing.
        starved_ratio: how much of its time it waits for a processor; `None` if unknown.
        worker: its slot.
        since_seconds: age of all of this.
        trouble: why it does not respond now; empty if it does.
        stopped: whether a signal or a debugger has stopped it.
        ended: how it ended, as far as is known; empty if it has not.
        ended_seconds: how long that has been known.
        closed_seconds: how long ago it ended, if the kernel reported that.
        words: its record, once it has ended or said how it ends.
        oom_kills: how many processes of its cgroup the kernel killed for memory
            between its last response and its end; `None` if unknown.
        host_oom_kills: the same, of the whole host.
        course: what its time went into, by call; `None` if unknown.
        alone: with whose programs, of the functions that it runs alone, its device
            worked longest in the last seconds; empty if unknown.
        places: the lines where it was lately, other than in waits for the device, those
            that took most time first.
        gpus: UUIDs of its GPUs.
        setup: what its programs depend on besides its code, by name.
        key_part: of its keys in the persistent cache; should be that of all others.
    """

    schema: int = 0
    index: int | None = None
    count: int | None = None
    coordinator: str = ""
    job: str = ""
    attempt: str = ""
    host: str = ""
    pid: int | None = None
    observed_seconds: float = 0.0
    loops: tuple[Loop, ...] = ()
    functions: tuple[Function, ...] = ()
    pace: Pace = field(default_factory=Pace)
    now: Now = field(default_factory=Now)
    compiling: Compiling = field(default_factory=Compiling)
    starved_ratio: float | None = None
    worker: str = ""
    since_seconds: float = 0.0
    trouble: str = ""
    stopped: bool = False
    ended: str = ""
    ended_seconds: float = 0.0
    closed_seconds: float | None = None
    words: ProcessEnd = field(default_factory=ProcessEnd)
    oom_kills: int | None = None
    host_oom_kills: int | None = None
    course: Any = None
    alone: str = ""
    places: tuple[Place, ...] = ()
    gpus: tuple[str, ...] = ()
    setup: Mapping[str, str] = field(default_factory=dict, hash=False)
    key_part: str = ""

    @property
    def responds(self) -> bool:
        """Whether this is about now."""
        return not (self.trouble or self.stopped or self.ended)

    @property
    def age(self) -> float | None:
        """
        Seconds since it called what the ranks call together, or else did a step of a
        loop that it marks; `None` if neither is known.
        """
        found = self.pace.age_seconds
        if found is None:
            ages = [
                one.age_seconds for one in self.loops if one.age_seconds is not None
            ]
            found = min(ages, default=None)
        return None if found is None else max(found, 0.0) + self.since_seconds

    def calls(self, function: str) -> int | None:
        """
        Return how often it has called *function*, `None` if that is unknown; one that
        it has never called is not among its functions.
        """
        for one in self.functions:
            if one.name == function:
                return one.calls
        return 0 if self.functions else None

    def fingerprint(self, function: str) -> str:
        """Return that of its latest program of *function*, empty if unknown."""
        known = (one.fingerprint for one in self.functions if one.name == function)
        return next(known, "")


@dataclass(frozen=True, slots=True)
class Host:
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

    target: str
    trouble: str = ""
    ranks: tuple[Rank, ...] = ()
    others: int = 0
    unknown: tuple[Rank, ...] = ()
    stacks: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    xids: tuple[Xid, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    runs: tuple[Any, ...] = ()
    time: float | None = None
    asked: float = 0.0
    within: float = 0.0
    nccl: Ras | None = None
    collectives: Inspected | None = None
    addresses: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def ahead(self) -> float | None:
        """Return how much its clock is ahead of that of who asked, if it is."""
        if self.time is None or not self.asked:
            return None
        found = self.time - self.asked
        return found if abs(found) > self.within else None


def restarts(attempt: str) -> int:
    """Return how often a job was restarted, of which this is the *attempt*."""
    known = attempt.isascii() and attempt.isdecimal() and len(attempt) < _DIGITS
    return int(attempt) if known else 0


def host(target: str, document: object) -> Host:
    """
    Return the content of the ``/job`` of the sidecar at *target*.

    Raises:
        ValueError: it is something else, or of a later release.
    """
    given = mapping(document).get("ranks")
    schema.require(mapping(document), SCHEMA, oldest=0)
    if not isinstance(given, list):
        msg = "its response is not that of a sidecar's /job"
        raise ValueError(msg)  # noqa: TRY004 - a value of another origin, no mistake
    ranks, others, stacks, runs = [], 0, {}, []
    doubts: list[str] = []
    unknown: list[Rank] = []
    setups = Setups(document)
    for one in given[:_MOST_ON_A_HOST]:
        if run := mapping(one).get("run"):
            runs.append(run)
        try:
            schema.require(mapping(one), SCHEMA, oldest=0)
        except ValueError as error:
            doubts.append(f"worker {mapping(one).get('worker')!s:.8}: {error}")
            continue
        read, names = sifted(Rank, one)
        if names:
            dropped = ", ".join(names)
            doubts.append(
                f"worker {read.worker}: implausible values dropped: {dropped}"
            )
        rank = _bounded(read, setups.of(one))
        if rank is None:
            others += not read.ended
            failed = read.words.failed or read.ended == KILLED
            unknown += [read] * failed
            continue
        ranks.append(rank)
        stacks[rank.worker] = _stacks(mapping(one).get("stacks"))
    of_host = from_json(_OfHost, document)
    return Host(
        target,
        "",
        tuple(ranks),
        others,
        tuple(unknown),
        stacks,
        xids=of_host.xids[:_MOST_XIDS],
        gpus=of_host.gpus[:_MOST_XIDS],
        runs=tuple(runs),
        time=of_host.time,
        nccl=of_host.nccl,
        collectives=of_host.collectives,
        addresses=of_host.addresses,
        doubts=tuple(map(clean, doubts)),
    )


@dataclass(frozen=True, slots=True)
class _OfHost:
    xids: tuple[Xid, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    time: float | None = None
    nccl: Ras | None = None
    collectives: Inspected | None = None
    addresses: tuple[str, ...] = ()


def _bounded(rank: Rank, setup: Mapping[str, str]) -> Rank | None:
    """Return *rank*, with its *setup*, if it is one of several processes of a job."""
    if rank.index is None or rank.count is None:
        return None
    known = 1 < rank.count <= MOST_RANKS and 0 <= rank.index < rank.count
    if not known:
        return None
    return replace(rank, course=course.read(rank.course), setup=setup)


def _stacks(document: Any) -> tuple[tuple[str, ...], ...]:
    from jaxmon.report.stacks import Stacks  # noqa: PLC0415 - seldom given

    if not document:
        return ()
    return tuple(one.stack for one in from_json(Stacks, document).threads if one.stack)
