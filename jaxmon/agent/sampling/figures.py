"""The times of one function's sampled calls, and the objects to sample."""

from __future__ import annotations

from itertools import islice
from types import FunctionType

from jaxmon import catalog
from jaxmon.agent.counted import CountedFunction, call_count, jitted_of
from jaxmon.agent.functions import Function
from jaxmon.agent.sampling.execution import RollingMedian, SampleEstimates, SteadyPace
from jaxmon.exposition.families import Histogram


# Maximum number of objects of one label searched for one that is being called.
_OBJECTS = 64


class Figures:
    """
    The samples of one function.

    Attributes:
        hits: their number at the last timer run.
        sampled: `time.perf_counter` when it last had its turn.
        dispatch: how long sampled calls took to return.
        execution: how long the device worked on them.
        dispatches: the latest values of `dispatch`.
        executions: the latest values of `execution`.
        steady: the mean of all values of `execution`, of which none is a large part.
        pace: estimates for the next samples.
    """

    def __init__(self, function: Function) -> None:
        self._objects = function.objects
        self._taken: dict[int, int] = {}
        self.hits = 0
        self.sampled = 0.0
        self.dispatch = Histogram(catalog.DISPATCH_SECONDS, function.name)
        self.execution = Histogram(catalog.EXECUTION_SECONDS, function.name)
        self.dispatches = RollingMedian()
        self.executions = RollingMedian()
        self.steady = SteadyPace()
        self.pace = SampleEstimates(self.dispatches)

    def dispatched(self, seconds: float) -> None:
        """Add the time until a sampled call returned."""
        self.dispatch.observe(seconds)
        self.dispatches.add(seconds)

    def executed(self, seconds: float) -> None:
        """Add the execution time."""
        self.execution.observe(seconds)
        self.executions.add(seconds)
        self.steady.add(seconds)

    def busiest(self) -> CountedFunction | None:
        """
        Return the object called most since the last call of this method. A pmap since
        0.8 is none of them: a Python function around the jitted one.
        """
        before, self._taken = self._taken, {}
        best, most = None, 0
        for number, counted in islice(self._objects.newest_first(), _OBJECTS):
            now = self._taken[number] = call_count(counted)
            fresh = now - before.get(number, 0)
            if fresh > most and type(jitted_of(counted)) is not FunctionType:
                best, most = counted, fresh
        return best
