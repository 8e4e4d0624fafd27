"""What is found out about a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from jaxmon.facts.walltime import FailedHelper
from jaxmon.report.job.latecomers import Latecomer
from jaxmon.report.job.nccl import Seen
from jaxmon.report.job.records import Rank
from jaxmon.report.job.slow import Slowness


class State(Enum):
    """How a job is, the worst last."""

    ENDED = "ended"
    PROGRESSING = "progressing"
    WAITING = "waiting"
    """It does not get on, for a reason that may take as long."""
    UNKNOWN = "unknown"
    """Nothing is known of how it gets on."""
    HUNG = "hung"


class Kind(Enum):
    """What the others wait for, in the order in which it is looked at."""

    KILLED = "killed"
    CRASHED = "crashed"
    EXITED = "exited"
    """By `sys.exit` with another code than 0."""
    FINISHED = "finished"
    GONE = "gone"
    """No sidecar reports it, and all have answered."""
    STOPPED = "stopped"
    SILENT = "silent"
    UNSEEN = "unseen"
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


FAILED = frozenset((Kind.KILLED, Kind.CRASHED, Kind.EXITED, Kind.LOST))
"""How a process ends that fails."""

_WAITS = frozenset((Kind.DATA, Kind.LOCK, Kind.BLOCKED, Kind.IDLE))


@dataclass(frozen=True, slots=True)
class Suspects:
    """
    Ranks that are alike, for which others wait.

    Attributes:
        kind: in what they are alike.
        ranks: those that are known, lowest first.
        numbers: of all of them.
        place: ``file:line`` where they are.
        function: the function of the program at that line, or the jitted function.
        seconds: for how long at least; `None` if unknown.
        calls: how often they have called what the others wait in; `None` if unknown.
    """

    kind: Kind
    numbers: tuple[int, ...]
    ranks: tuple[Rank, ...] = ()
    place: str = ""
    function: str = ""
    seconds: float | None = None
    calls: int | None = None

    @property
    def gone(self) -> tuple[FailedHelper, ...]:
        """
        Helpers of the first of *ranks* that have failed, if it waits on the host: what
        it waits for may be one of them.
        """
        here = self.ranks and self.kind in _WAITS
        return self.ranks[0].now.gone if here else ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """
    Ranks that wait for the device, and so for other ranks.

    Attributes:
        numbers: which ones.
        function: the jitted function in whose call; empty if unknown.
        call: which call of it, counted from 1; `None` if unknown.
        place: ``file:line`` where most of them wait.
        fetches: whether they wait for results, not in the call itself.
        barrier: the function of JAX in which they wait for all processes, after that
            call; empty if they do not.
        partial: whether *function* runs on the devices of some processes only, as a
            stage of a pipeline: the others never call it.
    """

    numbers: tuple[int, ...] = ()
    function: str = ""
    call: int | None = None
    place: str = ""
    fetches: bool = False
    barrier: str = ""
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """
    What is found out about one job.

    Attributes:
        coordinator: its coordinator, by which it is known.
        count: of its processes.
        hosts: on how many hosts they were found.
        state: how it is.
        seconds: since any rank called what they call together; `None` if unknown.
        limit: from how many seconds that is called hung.
        waiting: the ranks that wait for the device.
        suspects: those that these wait for, the likeliest first.
        ahead: ranks that have made the call in which the others wait, and do something
            else, if it hangs and no rank is suspect.
        starved: those that wait for a processor most of the time.
        ranks: all that are known, by number.
        slowness: which ranks make it slower, if it gets on; `None` if unknown.
        nccl: what NCCL's RAS knows; `None` if nothing.
        latecomers: who comes last to collectives, if it gets on.
    """

    coordinator: str
    count: int
    hosts: int
    state: State
    seconds: float | None
    limit: float
    waiting: Waiting = field(default_factory=Waiting)
    suspects: tuple[Suspects, ...] = ()
    ahead: tuple[Suspects, ...] = ()
    starved: tuple[int, ...] = ()
    ranks: tuple[Rank, ...] = ()
    slowness: Slowness | None = None
    nccl: Seen | None = None
    latecomers: tuple[Latecomer, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What is found out about all jobs of some hosts.

    Attributes:
        jobs: the worst first.
        silent: hosts that did not answer, with the reason.
        answered: how many did.
        others: processes that belong to no job.
        unknown: processes that failed, and of which it is not known which rank they
            were.
        doubts: what is not read of hosts that answered, with the host.
    """

    jobs: tuple[Job, ...] = ()
    silent: tuple[tuple[str, str], ...] = ()
    answered: int = 0
    others: int = 0
    unknown: int = 0
    doubts: tuple[tuple[str, str], ...] = ()
