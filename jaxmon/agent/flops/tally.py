"""
FLOPs of the calls of one function.

JAX does not say which program a cached call runs. If all programs of a function need as
much, as if there is only one, calls times that is exact. Otherwise each sampled call
stands for those since the sample before: their shapes tell the programs apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jaxmon.agent.observers import Shapes
from jaxmon.facts.functions import Uncounted
from jaxmon.threads import RLock


_MOST_PROGRAMS = 1024


class Cost(NamedTuple):
    """
    What one call of a program takes, on this process's devices.

    Attributes:
        flops: by work, one of `catalog.FLOPS_WORK`.
        ideal: seconds that all devices of the process take for it at their peak, by
            work; `None` if a peak is unknown.
        part: what part of these devices runs the program; 0 if that is unknown.
    """

    flops: Mapping[str, float]
    ideal: Mapping[str, float] | None
    part: float = 1.0

    def is_same(self, other: Cost) -> bool:
        """Return whether calls of *other* count alike."""
        return (self.flops, self.ideal) == (other.flops, other.ideal)


class FunctionTally:
    """
    The FLOPs of a function's calls. Thread-safe.

    Attributes:
        unknown: why they are unknown; `None` if they are known.
        uncounted: whether calls of one of its programs are not counted.
    """

    def __init__(self) -> None:
        self.unknown: Uncounted | None = None
        self.uncounted = False
        self._lock = RLock()
        # By the hash of the arguments' shapes, which would take much more memory.
        self._costs: dict[int, Cost] = {}
        self._only: Cost | None = None
        self._settled = 0
        # Programs that were compiled and are not counted yet.
        # Calls before each program that is not counted yet.
        self._expected: list[int] = []
        self._flops: dict[str, float] = {}
        self._ideal: dict[str, float] | None = {}

    @property
    def only(self) -> Cost | None:
        """What a call of any program takes; `None` if they differ, or are unknown."""
        return self._only

    @property
    def multiplies(self) -> bool:
        """Whether a program of the function has FLOPs."""
        return any(any(one.flops.values()) for one in list(self._costs.values()))

    @property
    def mixed(self) -> bool:
        """Whether programs of the function need different FLOPs."""
        return self._only is None and bool(self._costs)

    def expect(self, calls: int) -> None:
        """Note that one of *calls* so far compiled a program, about to be counted."""
        with self._lock:
            if self._only is not None and not self._expected:
                self._settle(self._only, calls - 1)
            self._expected.append(calls - 1)

    def expect_none(self) -> None:
        """Note that a program which was expected will not be counted."""
        with self._lock:
            del self._expected[-1:]
            self.unknown = self.unknown or Uncounted("untraced")

    def add(self, cost: Cost | Uncounted, shapes: Shapes | None) -> None:
        """
        Note a program that was expected.

        Args:
            cost: what a call of it takes.
            shapes: of the arguments that it was compiled for, `None` if unknown.
        """
        with self._lock:
            del self._expected[:1]
            if isinstance(cost, Uncounted):
                self.unknown = self.unknown or cost
                return
            key = hash(shapes)
            known = self._costs.get(key)
            if known is not None and known != cost:
                if not known.is_same(cost):  # static arguments differ
                    self.unknown = self.unknown or Uncounted("programs")
                cost = cost._replace(part=0.0)  # shardings differ
            if not self._costs:
                self._only = cost
            elif self._only is not None and not self._only.is_same(cost):
                self._only = None  # its calls were settled when this was compiled
            if key in self._costs or len(self._costs) < _MOST_PROGRAMS:
                self._costs[key] = cost
            if self._only is not None and self._expected:
                # Another was compiled before this one was counted.
                self._settle(self._only, self._expected[0])

    def sampled(self, shapes: Shapes, calls: int) -> None:
        """Count *calls* so far, the latest of which had arguments of these *shapes*."""
        with self._lock:
            if not self.mixed:
                return
            cost = self._costs.get(hash(shapes))
            if cost is None:
                self.unknown = self.unknown or Uncounted("programs")
            else:
                self._settle(cost, calls)

    def cost(self, shapes: Shapes) -> Cost | None:
        """Return what a call with arguments of these *shapes* takes, if known."""
        return self._costs.get(hash(shapes)) or self._only

    def totals(self, calls: int) -> Cost:
        """Return what *calls* took; the latest ones are added at the next sample."""
        with self._lock:
            if self._only is not None and not self._expected:
                self._settle(self._only, calls)
            ideal = None if self._ideal is None else dict(self._ideal)
            return Cost(dict(self._flops), ideal)

    def _settle(self, cost: Cost, calls: int) -> None:
        fresh = max(calls - self._settled, 0)
        self._settled += fresh
        for work, number in cost.flops.items():
            self._flops[work] = self._flops.get(work, 0.0) + number * fresh
        if self._ideal is not None and cost.ideal is not None:
            for work, seconds in cost.ideal.items():
                self._ideal[work] = self._ideal.get(work, 0.0) + seconds * fresh
        else:
            self._ideal = None
