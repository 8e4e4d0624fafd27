"""What a reply of NCCL's RAS says, whichever format it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple


class BrokenReplyError(ValueError):
    """A reply is not one of RAS, or not complete."""


class Behind(NamedTuple):
    """
    A rank that launched fewer collectives than another one of its communicator.

    Args:
        host: its address.
        rank: in the communicator.
        lag: collectives that it is behind, of the kind in which these are most.
        pid: its process; -1 if unknown.
    """

    host: str
    rank: int
    lag: int
    pid: int = -1


class Missing(NamedTuple):
    """A process on *host* that is ``unresponsive`` or ``dead``."""

    host: str
    pid: int
    state: str


class Uneven(NamedTuple):
    """
    A communicator whose ranks have launched different numbers of collectives.

    Args:
        key: identifies it from reply to reply.
        counts: changes if any of its ranks launches another one.
        lagging: number of ranks that are behind.
        behind: those of them that the reply names.
    """

    key: str
    counts: Hashable
    lagging: int
    behind: tuple[Behind, ...]


class Report(NamedTuple):
    """
    A job at one moment.

    Args:
        version: of NCCL.
        cuda: version of its CUDA runtime.
        driver: version of CUDA that the driver supports.
        processes: of the job, by state.
        absent: processes that are not responding or dead, if named.
        communicators: by state.
        faults: communicators by fault, except stuck ones.
        uneven: whose ranks are at different collectives, which is normal for a moment.
        first_host: address of the first rank that responds; ``""`` if unknown.
        seconds: that it took.
        timeouts: met meanwhile.
    """

    version: str
    cuda: str
    driver: str
    processes: Counter[str]
    gpus: int
    nodes: int
    absent: tuple[Missing, ...]
    communicators: Counter[str]
    faults: Counter[str]
    uneven: tuple[Uneven, ...]
    first_host: str
    seconds: float
    timeouts: int

    @property
    def missing(self) -> Counter[str]:
        """Return the number of processes that are *absent*, by host."""
        return Counter(one.host for one in self.absent)

    @property
    def lost(self) -> int:
        """Processes that do not respond or are dead."""
        return self.processes["unresponsive"] + self.processes["dead"]


def cuda_version(number: int) -> str:
    """Return ``12.8`` for 12080; ``""`` for -1, which is unknown, and the like."""
    known = 0 <= number < 1_000_000  # noqa: PLR2004 - CUDA 1000
    return f"{number // 1000}.{number % 1000 // 10}" if known else ""
