"""
How near a function comes to what its devices can do, by sampled execution times, and
whether arithmetic or memory bounds it.
"""

from __future__ import annotations

from jaxmon.agent.flops.tally import Cost
from jaxmon.agent.sampling.execution import SteadyPace
from jaxmon.facts.functions import Roofline
from jaxmon.threads import Lock


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
    intensity, ridge = flops / accessed, flops / seconds / bandwidth
    bound = "arithmetic" if intensity >= ridge else "memory"
    return Roofline(intensity, ridge, bound)


class Executions:
    """Sampled executions of one function. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._steady = SteadyPace()
        self._flops = 0.0
        self._ideal: float | None = 0.0

    def add(self, cost: Cost, seconds: float) -> None:
        """Add an execution that took *seconds*."""
        flops = cost.flops["model"]
        if not flops:
            return
        with self._lock:
            self._steady.add(seconds, flops)
            self._flops += flops
            if self._ideal is not None and cost.ideal is not None and cost.part:
                self._ideal += cost.ideal["model"] / cost.part
            else:
                self._ideal = None

    @property
    def achieved(self) -> float | None:
        """Model FLOP/s on the devices of this process that run it."""
        pace = self._steady.pace
        return 1 / pace if pace else None

    @property
    def of_peak(self) -> float | None:
        """What fraction of their peak that is; `None` if that is unknown."""
        with self._lock:
            pace = self._steady.pace
            if self._ideal is None or not pace:
                return None
            return self._ideal / (pace * self._flops)
