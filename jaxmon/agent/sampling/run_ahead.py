"""
Whether the program is ahead of its device, in what the processes of a job run together.

A program may be slow and cost the others nothing, if its device always has work that
was dispatched before. Execution times show that badly: on a busy CPU those of some
samples are off by a third. That one call has been dispatched and is not finished is
certain, and so is that it is finished and no other has been dispatched. So one call is
seen from time to time, and polled until the next.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

from jaxmon.agent.counted import Arm, CountedFunction, arm, waiting_for
from jaxmon.agent.functions import Function
from jaxmon.agent.sampling.window import CallEnd
from jaxmon.agent.sampling.work import DeviceWork
from jaxmon.clocks import perf_counter


# Seconds between two calls that are seen. One is usually in flight for longer if the
# program is far ahead.
_EVERY = 0.5

Begin = Callable[
    ["DispatchProbe", CountedFunction, Callable[..., Any], FrameType], None
]


class DispatchProbe:
    """
    Waits for the next call of one object, only to see what it dispatches.

    Args:
        begin: starts the call.
        function: whose call it is.
        then: waits for the call after that, if something does.
    """

    __slots__ = ("_begin", "function", "then")

    def __init__(self, begin: Begin, function: Function, then: Arm | None) -> None:
        self._begin = begin
        self.function = function
        self.then = then

    def begin(
        self,
        counted: CountedFunction,
        jitted: Callable[..., Any],
        frame: FrameType,
        /,
    ) -> None:
        """Pass on the call that starts."""
        if self.then is not None:
            arm(counted, self.then)
        self._begin(self, counted, jitted, frame)


class RunAhead:
    """
    Follows what the program has dispatched for all processes of its job.

    Args:
        spanning: returns the functions that run on devices of other processes, too.
        begin: starts a call that is to be seen.
    """

    def __init__(
        self, spanning: Callable[[], Collection[Function]], begin: Begin
    ) -> None:
        self._spanning = spanning
        self._begin = begin
        self._called: tuple[weakref.ref[CountedFunction], Function] | None = None
        self._due = self._since = 0.0
        self._work: DeviceWork | None = None
        self._calls = 0

    def sampled(self, function: Function, counted: CountedFunction) -> None:
        """Note that *counted*, an object of *function*, is being called."""
        if function in self._spanning():
            self._called = weakref.ref(counted), function

    def dispatched(self, call: CallEnd) -> None:
        """Follow a *call* that has returned, on its thread."""
        work, before = call.work, self._work
        if work is None or not work.is_small:
            return  # its outputs would be kept until the next look
        if before is None or before.look():
            self._since = call.ended
        self._calls, self._work = self._count(), work

    def look(self) -> tuple[float, float]:
        """
        Return for how many seconds the device has had work for certain, at least, and
        for how many it has had none; see to it that another call is seen, if that is
        due. For one thread.
        """
        now, work, called = perf_counter(), self._work, self._called
        unfinished = work is not None and not work.look()
        if now >= self._due and called is not None:
            self._due = now + _EVERY
            counted = called[0]()
            waits = None if counted is None else waiting_for(counted)
            if counted is not None and not isinstance(waits, DispatchProbe):
                arm(counted, DispatchProbe(self._begin, called[1], waits))
        if unfinished:
            return max(now - self._since, 0.0), 0.0
        if work is None or work.finished is None or self._count() != self._calls:
            return 0.0, 0.0
        return 0.0, max(now - work.finished, 0.0)

    def _count(self) -> int:
        return sum([one.objects.calls + one.missed for one in self._spanning()])
