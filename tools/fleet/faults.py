"""What goes wrong in a fleet, by name: in one job, for some time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tools.fleet.layout import Life, Pod


# What `Fault.amount` says.
KINDS = {
    "errors": "fraction of the requests that fail",
    "hang": "fraction of the processes in which nothing finishes any more",
    "recompiles": "recompiles a second in each process",
    "crashes": "seconds from a start to the next crash",
    "vanish": "fraction of the pods that no longer exist",
}
_DOWN_SECONDS = 10.0


@dataclass(frozen=True)
class Fault:
    """
    One of `KINDS`.

    Args:
        cluster, job: which job it concerns.
        start, end: seconds since the epoch.
        amount: see `KINDS`.
    """

    kind: str
    cluster: str
    job: str
    start: float
    end: float
    amount: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            msg = f"fault {self.kind!r} is unknown; known: {', '.join(KINDS)}"
            raise ValueError(msg)

    def concerns(self, pod: Pod, life: Life | None = None) -> bool:
        """Return whether *pod*, or the process *life* of it, has this fault."""
        if (pod.cluster, pod.job) != (self.cluster, self.job):
            return False
        return (
            self.kind != "hang" or life is None or life.rank < self.amount * life.ranks
        )


def apply(pods: Iterable[Pod], faults: Iterable[Fault]) -> list[Pod]:
    """Return *pods* as they are with the faults that end and start processes."""
    found = list(pods)
    for fault in faults:
        if fault.kind == "crashes":
            found = [
                _crashing(pod, fault) if fault.concerns(pod) else pod for pod in found
            ]
        if fault.kind == "vanish":
            found = [
                replace(
                    pod,
                    end=min(pod.end, fault.start),
                    lives=tuple(
                        replace(life, end=min(life.end, fault.start))
                        for life in pod.lives
                        if life.start < fault.start
                    ),
                )
                if _vanishes(pod, fault)
                else pod
                for pod in found
            ]
    return [pod for pod in found if pod.start < pod.end]


def _vanishes(pod: Pod, fault: Fault) -> bool:
    rank = min((life.rank for life in pod.lives), default=0)
    ranks = max((life.ranks for life in pod.lives), default=1)
    return fault.concerns(pod) and rank < fault.amount * ranks


def _crashing(pod: Pod, fault: Fault) -> Pod:
    lives: list[Life] = []
    for life in pod.lives:
        if life.end <= fault.start or life.start >= fault.end:
            lives.append(life)
            continue
        moment = max(life.start, fault.start)
        if life.start < moment:
            lives.append(replace(life, end=moment))
        while moment < min(life.end, fault.end):
            end = min(moment + fault.amount, life.end)
            lives.append(replace(life, start=moment, end=end))
            moment = end + _DOWN_SECONDS
        if moment < life.end:
            lives.append(replace(life, start=moment))
    return replace(pod, lives=tuple(lives))
