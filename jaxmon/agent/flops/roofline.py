"""
How near a function comes to what its devices can do, by sampled execution times, and
whether arithmetic or memory bounds it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from jaxmon.agent.flops.tally import Cost
from jaxmon.threads import Lock


Bound = Literal["arithmetic", "memory"]


class Roofline(NamedTuple):
    """
    Where a program is under the roofline of its devices (Williams, Waterman, Patterson:
    Roofline, 2009).

    Attributes:
        intensity: FLOPs per byte that it accesses.
        ridge: FLOPs per byte from which on arithmetic bounds a program.
    """

    intensity: float
    ridge: float

    @property
    def bound(self) -> Bound:
        """What bounds the program."""
        return "arithmetic" if self.intensity >= self.ridge else "memory"


def roofline(
    flops: float, seconds: float | None, accessed: float | None, bandwidth: float | None
) -> Roofline | None:
    """
    Return where a program is; `None` if something is unknown.

    Args:
        flops: of one device, with those computed once more.
        seconds: that they take it at its peak.
        accessed: bytes that the device accesses.
        bandwidth: bytes per second from its memory.
    """
    if not (flops and seconds and accessed and bandwidth):
        return None
    return Roofline(flops / accessed, flops / seconds / bandwidth)


class Executions:
    """Sampled executions of one function. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seconds = self._flops = 0.0
        self._ideal: float | None = 0.0

    def add(self, cost: Cost, seconds: float) -> None:
        """Add an execution that took *seconds*."""
        with self._lock:
            self._seconds += seconds
            self._flops += cost.flops["model"]
            if self._ideal is not None and cost.ideal is not None and cost.part:
                self._ideal += cost.ideal["model"] / cost.part
            else:
                self._ideal = None

    @property
    def achieved(self) -> float | None:
        """Model FLOP/s on the devices of this process that run it."""
        return self._flops / self._seconds if self._seconds else None

    @property
    def of_peak(self) -> float | None:
        """What fraction of their peak that is; `None` if that is unknown."""
        with self._lock:
            known = self._ideal is not None and self._seconds
            return (self._ideal or 0.0) / self._seconds if known else None
