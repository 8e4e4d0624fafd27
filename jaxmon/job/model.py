"""What is found out about a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from jaxmon.facts.host import CommunicatorRank, LaggingRank, MissingProcess, Ras
from jaxmon.facts.rank import Rank
from jaxmon.facts.walltime import FailedHelper, Standing


class JobState(Enum):
    """How a job is, the worst last."""

    ENDED = "ended"
    PROGRESSING = "progressing"
    WAITING = "waiting"
    """It makes no progress, for a reason that may take as long."""
    UNKNOWN = "unknown"
    """Nothing is known of its progress."""
    HUNG = "hung"


class SuspectKind(Enum):
    """What the others wait for, in the order in which it is suspected."""

    KILLED = "killed"
    CRASHED = "crashed"
    EXITED = "exited"
    """By `sys.exit` with another code than 0."""
    FINISHED = "finished"
    TERMINATED = "terminated"
    """By SIGTERM or SIGINT: a person or a scheduler stopped it."""
    MISSING = "gone"
    """No sidecar reports it, and all have answered."""
    STOPPED = "stopped"
    SILENT = "silent"
    UNREACHABLE = "unseen"
    """It may be on a host that did not answer."""
    COMPILE = "compile"
    ACTIVITY = "activity"
    """It is in an activity that the program marks, such as a checkpoint."""
    LOCK = "lock"
    DATA = "data"
    BLOCKED = "blocked"
    IDLE = "idle"
    """It waits for work, such as an event loop of which no task can continue."""
    CALLBACK = "callback"
    """It is in a callback, for which its XLA program waits."""
    LOCAL = "local"
    """It runs a function that no other process takes part in."""
    CODE = "code"
    PROGRAM = "program"
    """It waits for the device as well, but in another program."""
    ELSEWHERE = "elsewhere"
    """It waits for the device as well, but on another line."""
    LOST = "lost"
    """It ended by an exception about other processes: a consequence."""


FAILED = frozenset(
    (SuspectKind.KILLED, SuspectKind.CRASHED, SuspectKind.EXITED, SuspectKind.LOST)
)
"""How a process ends that fails."""
ENDED = FAILED | {SuspectKind.FINISHED, SuspectKind.TERMINATED}
OVER = ENDED | {SuspectKind.MISSING}
MUTE = frozenset((SuspectKind.STOPPED, SuspectKind.SILENT))
ABSENT = OVER | MUTE | {SuspectKind.UNREACHABLE}
"""Where they are, and what they did before, is not known or does not matter."""

_WAITS = frozenset(
    (SuspectKind.DATA, SuspectKind.LOCK, SuspectKind.BLOCKED, SuspectKind.IDLE)
)


class Suspects(NamedTuple):
    """
    Ranks that are alike in *kind*, for which others wait: *numbers* of all, *ranks* of
    those known. *function* is the program's at *place*, or the jitted one; *calls* is
    how often they have called what the others wait in.
    """

    kind: SuspectKind
    numbers: tuple[int, ...]
    ranks: tuple[Rank, ...] = ()
    place: str = ""
    function: str = ""
    seconds: float | None = None
    calls: int | None = None

    @property
    def failed_helpers(self) -> tuple[FailedHelper, ...]:
        """Failed helpers of the first rank, if it waits on the host, maybe for one."""
        here = self.ranks and self.kind in _WAITS
        return self.ranks[0].now.gone if here else ()

    @property
    def fillers(self) -> tuple[Standing, ...]:
        """Threads of the first rank that may fill the queue that it waits for."""
        here = self.ranks and self.kind is SuspectKind.DATA
        return self.ranks[0].now.fillers if here else ()

    @property
    def contenders(self) -> tuple[Standing, ...]:
        """Threads of the first rank that wait for a lock, if it does."""
        here = self.ranks and self.kind is SuspectKind.LOCK
        return tuple(of for of in self.ranks[0].now.others if of.stack) if here else ()


class DeviceWait(NamedTuple):
    """
    Ranks that wait for the device, and so for other ranks: in *call*, from 1, of
    *function*, most of them at *place*. They have made it and *fetch* results, or wait
    for all in JAX's *barrier* after it. A *partial* function runs on some devices only,
    as a stage of a pipeline: other processes never call it.
    """

    numbers: tuple[int, ...] = ()
    function: str = ""
    call: int | None = None
    place: str = ""
    fetches: bool = False
    barrier: str = ""
    partial: bool = False


class SlowKind(Enum):
    """What a slow rank spends the time on that the others wait for."""

    DATA = "data"
    PYTHON = "python"
    GIL = "gil"
    BLOCKED = "blocked"
    COMPILE = "compile"
    TRANSFER = "transfer"
    HOST = "host"
    """Nothing lets it run: it is stopped again and again, or has no processor."""
    COMPUTE = "compute"
    """Its device works on programs that no other process takes part in."""


class Straggler(NamedTuple):
    """
    A rank for which the others wait in their collectives, *ratio* of the time.

    It has *spent* so many seconds of a step on *kind*, a *median* rank less, and is
    *busy*, not waiting for its device, *times_median* as long as that and *times_past*
    as long as itself before (`None` if it was never faster). *place* and *activity* are
    where it is most; *function* is what its device runs alone. It has been so for
    *seconds* at least, *always* if since the first steps, until *ended_seconds* ago.
    """

    rank: Rank
    kind: SlowKind
    ratio: float
    spent: float
    median: float
    busy: float
    times_median: float
    times_past: float | None = None
    place: str = ""
    activity: str = ""
    function: str = ""
    seconds: float = 0.0
    always: bool = False
    ended_seconds: float = 0.0
    throttled: tuple[str, ...] = ()
    xids: tuple[str, ...] = ()


class Slowness(NamedTuple):
    """
    Which ranks make a job slower now, and *former* ones; a *step* takes so many seconds
    (a call, if no step is known), of which the others wait for those that are *lost*;
    *throttled* are those whose GPUs are, unlike most.
    """

    stragglers: tuple[Straggler, ...] = ()
    former: tuple[Straggler, ...] = ()
    step: float = 0.0
    lost: float = 0.0
    throttled: tuple[tuple[Rank, tuple[str, ...]], ...] = ()


class RasView(NamedTuple):
    """
    What RAS knows; ranks *behind* and *missing* processes have our rank, if known.
    """

    target: str
    ras: Ras
    behind: tuple[tuple[LaggingRank, Rank | None], ...] = ()
    missing: tuple[tuple[MissingProcess, Rank | None], ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether all processes respond, and no rank is behind."""
        processes = self.ras.processes
        return not (self.ras.lagging or processes.unresponsive or processes.dead)


class LateRank(NamedTuple):
    """
    A rank for which collectives of a communicator wait *ratio* of the time: *mean* and
    *median* are seconds of kernels; *several* if its process has other ranks there.
    """

    rank: Rank
    collectives: CommunicatorRank
    several: bool
    mean: float
    median: float
    ratio: float


class SetupDifference(NamedTuple):
    """The value of some ranks, that of most, and how many there are."""

    name: str
    value: str
    usual: str
    values: int = 1


class DeviatingRanks(NamedTuple):
    """Ranks that differ from most others, and in what."""

    numbers: tuple[int, ...]
    ranks: tuple[Rank, ...]
    differences: tuple[SetupDifference, ...]


class MissCause(Enum):
    """Why ranks do not find what others have."""

    DIRECTORIES = "directories"
    """Their directories have other names."""
    LOCAL = "local"
    """Each host has a directory of its own."""
    KEYS = "keys"
    """The same program has another key in each process, whatever the directory."""
    NO_CACHE = "no_cache"
    """None has a directory, and the job was restarted."""
    UNKNOWN = "unknown"


class RepeatedCompiles(NamedTuple):
    """
    Compiles of *ranks* that the persistent cache would have saved, as for those that
    *loaded* them: *functions*, the longest of which is *function*, *seconds* in all,
    the *longest* of one rank, for which the others waited. *place* is a file system of
    one host.
    """

    numbers: tuple[int, ...]
    ranks: tuple[Rank, ...]
    loaded: tuple[int, ...]
    function: str
    functions: int
    seconds: float
    longest: float
    cause: MissCause
    place: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """
    What is found out about one job, known by its coordinator, of so many processes on
    so many hosts. It has made no progress for *seconds*, and hangs from *limit* on.

    If it does not get on, ranks are *waiting* for *suspects*, the likeliest first; if
    there are none, *dispatched* have made the call and do something else. If it does,
    there are *slowness* and *late_ranks*, who come last to collectives. *starved* wait
    for a processor most of the time, *deviating* differ from most, *repeated* compiled
    in vain; *ranks* are all that are known, by number.
    """

    coordinator: str
    count: int
    hosts: int
    state: JobState
    seconds: float | None
    limit: float
    waiting: DeviceWait = field(default_factory=DeviceWait)
    suspects: tuple[Suspects, ...] = ()
    dispatched: tuple[Suspects, ...] = ()
    starved: tuple[int, ...] = ()
    ranks: tuple[Rank, ...] = ()
    slowness: Slowness | None = None
    nccl: RasView | None = None
    late_ranks: tuple[LateRank, ...] = ()
    deviating: tuple[DeviatingRanks, ...] = ()
    repeated: RepeatedCompiles | None = None


class Verdict(NamedTuple):
    """
    What is found out about jobs, the worst first. *silent* hosts did not answer;
    *others* belong to no job; *unknown* processes failed without a known rank; *doubts*
    are what was not read of a host.
    """

    jobs: tuple[Job, ...] = ()
    silent: tuple[tuple[str, str], ...] = ()
    answered: int = 0
    others: int = 0
    unknown: int = 0
    doubts: tuple[tuple[str, str], ...] = ()
