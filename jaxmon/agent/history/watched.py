"""Programs and loops whose times are followed."""

from __future__ import annotations

from typing import NamedTuple

from jaxmon.agent.functions import Function
from jaxmon.agent.history.store import PastRun, ProgramTimes
from jaxmon.agent.history.times import Times
from jaxmon.indicators.loops import Loop


class SlowerThanPast(NamedTuple):
    """
    A program that is slower than in an earlier run.

    Attributes:
        run: that run.
        then: what it took there.
        changed: what differs between that run and this one, ``name: old → new``.
    """

    run: PastRun
    then: ProgramTimes
    changed: tuple[str, ...]


class Watched:
    """
    A program of a function, or a loop.

    Attributes:
        name: of the function or loop.
        shapes: of the program's arguments, as text; empty for a loop.
        times: how long it takes.
        beside: what happened when it became slower.
        crowded: whether other processes held the processors that it runs on by then.
        past: how it is slower than in an earlier run, `None` if it is not.
    """

    kind = ""

    def __init__(self, name: str, shapes: str, now: float) -> None:
        self.name = name
        self.shapes = shapes
        self.times = Times(now)
        self.beside: tuple[str, ...] = ()
        self.crowded = False
        self.past: SlowerThanPast | None = None

    @property
    def calls(self) -> float:
        """How often it has run, as far as that is known."""
        raise NotImplementedError


class Program(Watched):
    """
    A program of *function*. Its calls are those of the function, in the proportion of
    its samples.

    Attributes:
        samples: number of its samples.
        added: Unix time of the last.
        sampled: number of samples of all programs of the function, in one place.
    """

    kind = "function"

    def __init__(
        self, function: Function, shapes: str, sampled: list[int], now: float
    ) -> None:
        super().__init__(function.name, shapes, now)
        self._function = function
        self.samples = 0
        self.added = 0.0
        self.sampled = sampled

    def add(self, now: float, seconds: float) -> None:
        """Add a sample."""
        self.added = now
        self.samples += 1
        self.sampled[0] += 1
        self.times.add(now, seconds, self.calls)

    @property
    def calls(self) -> float:
        """Calls of the function, as many as it has of the samples."""
        return self._function.objects.calls * self.samples / max(self.sampled[0], 1)


class LoopSteps(Watched):
    """
    The steps of *loop*: means over intervals, since single steps are not kept.

    Attributes:
        waits: how much of a step is waiting for data.
    """

    kind = "loop"

    def __init__(self, loop: Loop, now: float) -> None:
        super().__init__(loop.name, "", now)
        self.waits = Times(now)
        self._loop = loop
        self._seen = (loop.steps, loop.seconds.sum, loop.waited)

    def poll(self, now: float) -> None:
        """Add the mean of the steps since the last time, if there were any."""
        loop, (steps, seconds, waited) = self._loop, self._seen
        self._seen = (loop.steps, loop.seconds.sum, loop.waited)
        if (fresh := self._seen[0] - steps) > 0:
            self.times.add(now, max(self._seen[1] - seconds, 0.0) / fresh, steps)
            self.waits.add(now, max(self._seen[2] - waited, 0.0) / fresh)

    @property
    def calls(self) -> float:
        """Steps."""
        return self._loop.steps
