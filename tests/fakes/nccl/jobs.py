"""Jobs that use NCCL: processes, their communicators, and what is wrong with them."""

from dataclasses import dataclass, field


KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
LEVELS = ("NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT")


@dataclass
class Member:
    """
    A rank of a communicator.

    Args:
        counts: collectives launched, by kind.
        trouble: ``unresponsive``, ``dead``, or ``left`` the communicator.
    """

    rank: int
    host: str
    pid: int
    device: int
    counts: list[int] = field(default_factory=lambda: [0, 0, 7, 7, 40])
    init: int = 0
    error: int = 0
    finalize: bool = False
    abort: bool = False
    trouble: str = ""

    @property
    def level(self) -> int:
        if self.abort:
            return 4
        if self.finalize:
            return 3
        return 2 if self.init == 0 else 1

    @property
    def where(self) -> str:
        return f"GPU {self.device} managed by process {self.pid} on node {self.host}"


@dataclass
class Communicator:
    """Ranks that communicate; *number* makes its hashes."""

    number: int
    members: list[Member]

    @property
    def there(self) -> list[Member]:
        return [one for one in self.members if not one.trouble]

    @property
    def missing(self) -> list[Member]:
        return [one for one in self.members if one.trouble]

    @property
    def lost(self) -> list[Member]:
        return [one for one in self.missing if one.trouble != "left"]

    @property
    def levels(self) -> set[int]:
        left = len(self.missing) > len(self.lost)
        return {one.level for one in self.there} | ({0} if left else set())

    @property
    def errors(self) -> str:
        there = self.there
        mismatch = len(self.levels) > 1 or any(
            one.counts != there[0].counts for one in there
        )
        failed = any({one.init, one.error} - {0, 7} for one in there)
        found = [("INCOMPLETE", self.lost), ("ERROR", failed), ("MISMATCH", mismatch)]
        return ",".join(name for name, here in found if here) or "OK"


@dataclass
class Job:
    """A job of processes with one GPU each."""

    communicators: list[Communicator]
    version: str = "2.28.9"
    timeouts: int = 0

    def every(self) -> list[Member]:
        return [one for each in self.communicators for one in each.members]

    def processes(self) -> dict[tuple[str, int], str]:
        """Return what is the matter with each process, if anything."""
        return {
            (one.host, one.pid): one.trouble.replace("left", "") for one in self.every()
        }

    def by_trouble(self, trouble: str) -> list[tuple[str, int]]:
        return [each for each, one in self.processes().items() if one == trouble]


def job(nodes: int, per_node: int, communicators: int = 1, first: int = 1) -> Job:
    """Return a healthy job, each of whose *communicators* has all its ranks."""
    return Job(
        [
            Communicator(
                number,
                [
                    Member(
                        rank,
                        f"127.0.{first + rank // per_node}.1",
                        4000 + rank,
                        rank % per_node,
                    )
                    for rank in range(nodes * per_node)
                ],
            )
            for number in range(communicators)
        ]
    )
