"""What NCCL's RAS knows of a job, as a sidecar reports it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Processes:
    """How many processes RAS knows, by whether they respond to each other."""

    responding: int = 0
    unresponsive: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True)
class Behind:
    """
    A rank that has launched fewer collectives than another one, while none launches
    more: how many fewer, address of its host, process, and its number for NCCL.
    """

    host: str = ""
    pid: int = -1
    rank: int = -1
    lag: int = 0


@dataclass(frozen=True, slots=True)
class Missing:
    """A process that RAS does not reach, ``unresponsive`` or ``dead``."""

    host: str = ""
    pid: int = -1
    state: str = ""


@dataclass(frozen=True, slots=True)
class Ras:
    """
    A reply of RAS.

    Attributes:
        version: of NCCL.
        age_seconds: of the reply.
        processes: of the job.
        stuck: communicators whose ranks are at different collectives, and stay there.
        lagging: ranks that are behind in one of them.
        behind: some of these.
        missing: some of the processes that it does not reach.
    """

    version: str = ""
    age_seconds: float = 0.0
    processes: Processes = field(default_factory=Processes)
    stuck: int = 0
    lagging: int = 0
    behind: tuple[Behind, ...] = ()
    missing: tuple[Missing, ...] = ()
