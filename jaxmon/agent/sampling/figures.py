"""The times of one function's sampled calls, and which of its objects to sample."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.agent.counted import CountedFunction, taken
from jaxmon.agent.functions import Function
from jaxmon.agent.sampling.execution import Pace, Recent
from jaxmon.exposition.histogram import Histogram


# Objects with one label that are looked through for one that is being called.
_OBJECTS = 64


class _Object:
    """
    A `CountedFunction`, which this does not keep alive, and how often it was called.
    """

    __slots__ = ("reference", "taken")

    def __init__(self, counted: CountedFunction) -> None:
        self.reference = weakref.ref(counted)
        self.taken = 0


class Figures:
    """
    What is known of one function.

    Attributes:
        hits: how many it had when the timer last looked.
        sampled: `time.perf_counter` when one of its objects was last armed.
        dispatch: how long sampled calls took to return.
        execution: how long the device worked on them.
        dispatches: the last values of the former.
        executions: the last values of the latter.
        pace: what they tell about the next.
    """

    def __init__(self, function: Function) -> None:
        self._objects: deque[_Object] = deque(maxlen=_OBJECTS)
        self.hits = 0
        self.sampled = 0.0
        self.dispatch = Histogram(catalog.DISPATCH_SECONDS, function.name)
        self.execution = Histogram(catalog.EXECUTION_SECONDS, function.name)
        self.dispatches = Recent()
        self.executions = Recent()
        self.pace = Pace(self.dispatches)

    def add(self, counted: CountedFunction) -> None:
        """Take note of an object that runs it, without keeping it alive."""
        self._objects.append(_Object(counted))

    def alive(self) -> Iterator[CountedFunction]:
        """Yield the objects that are still there."""
        for entry in list(self._objects):
            counted = entry.reference()
            if counted is not None:
                yield counted

    def dispatched(self, seconds: float) -> None:
        """Add the time until a sampled call returned."""
        self.dispatch.observe(seconds)
        self.dispatches.add(seconds)

    def executed(self, seconds: float) -> None:
        """Add the time of the device."""
        self.execution.observe(seconds)
        self.executions.add(seconds)

    def busiest(self) -> CountedFunction | None:
        """Return the object that was called most since this was last asked."""
        best, most = None, 0
        for entry in list(self._objects):
            counted = entry.reference()
            if counted is None:
                continue
            now = taken(counted)
            if now - entry.taken > most:
                best, most = counted, now - entry.taken
            entry.taken = now
        return best
