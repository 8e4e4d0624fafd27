"""What is found out about ranks that make a job slower while it gets on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from jaxmon.report.job.records import Rank


class Slow(Enum):
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


@dataclass(frozen=True, slots=True)
class Straggler:
    """
    A rank for which the others wait in their collectives.

    Attributes:
        ratio: how much of the time they wait for it.
        spent: seconds of a step that it spends on what `kind` says.
        median: the same of the median rank.
        own: seconds of a step in which it does not wait for the device.
        times_median: how many times as long that is as of the median rank.
        times_past: the same of itself before; `None` if it was never faster.
        place: ``file:line`` where it is most of that time; empty if unknown.
        activity: the activity that it marks there; empty if none.
        function: whose programs its device runs, if that is why; empty if unknown.
        seconds: for how long it has been so, at least.
        always: whether that is since the first steps.
        ended_seconds: how long ago it ceased to be so; 0 if it has not.
        throttled: why its GPUs are throttled now.
        xids: their latest Xid errors.
    """

    rank: Rank
    kind: Slow
    ratio: float
    spent: float
    median: float
    own: float
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


@dataclass(frozen=True, slots=True)
class Slowness:
    """
    Which ranks make a job slower.

    Attributes:
        stragglers: those that do now, the slowest first.
        former: those that did, and do not any more.
        step: seconds of a step now; of a call, if it is not known what a step is.
        lost: how many of these would be saved if they were like the others.
        throttled: ranks whose GPUs are throttled, unlike those of most, with reasons.
    """

    stragglers: tuple[Straggler, ...] = ()
    former: tuple[Straggler, ...] = ()
    step: float = 0.0
    lost: float = 0.0
    throttled: tuple[tuple[Rank, tuple[str, ...]], ...] = ()
