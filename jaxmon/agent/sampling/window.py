"""
A short window in which every dispatched program is observed.

The device time of a sampled call can only be separated from previous work if that is
known: a call of its own function, of another function, an operation on an array,
anything that jaxmon does not count. While a window is open, JAX's post-call hook shows
all of them.

Whether the program is ahead of its device, in what the processes of a job run together.
A program may be slow and cost the others nothing, if its device always has work that
was dispatched before. Execution times show that badly: on a busy CPU those of some
samples are off by a third. That one call has been dispatched and is not finished is
certain, and so is that it is finished and no other has been dispatched. So one call is
seen from time to time, and polled until the next.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import chain, zip_longest
from operator import itemgetter
from types import FrameType
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.counted import Arm, CountedFunction, arm, call_count, waiting_for
from jaxmon.agent.functions import Function
from jaxmon.agent.guard import Guard
from jaxmon.agent.inspection import AnyCall
from jaxmon.agent.jaxlink.arrays import is_ready_or_deleted, underlying_array
from jaxmon.agent.jaxlink.hooks import PostCallHook, orders_across_devices
from jaxmon.clocks import perf_counter, thread_time
from jaxmon.threads import get_ident


# Number of leaves at either end of a program's outputs among which the smallest are
# chosen.
_LEAVES = 16
# How many are kept, and the maximum number of elements of all but the smallest.
_KEPT = 6
_SMALL = 1024


class DeviceWork:
    """
    One run of a program, by some of its outputs, ready together: if one is deleted or
    donated, the next is polled, without blocking. The end lies between two polls, the
    last that found it *unfinished* and the first that found it *finished*, by
    `time.perf_counter`; it is *lost* if all outputs were deleted or donated, or have an
    error.
    """

    __slots__ = ("_leaves", "finished", "lost", "unfinished")

    def __init__(self, leaves: Sequence[Any]) -> None:
        self._leaves = tuple(leaves)
        self.unfinished = -math.inf
        self.finished: float | None = None
        self.lost = False

    @property
    def is_small(self) -> bool:
        """Whether it costs next to no memory to keep this until the work is done."""
        return all([leaf.size <= _SMALL for leaf in self._leaves])

    def look(self) -> bool:
        """Poll; return whether polling is finished. Costs 0.3 µs."""
        leaves = self._leaves
        if not leaves:
            return True
        while leaves:
            before = perf_counter()
            try:
                ready = is_ready_or_deleted(leaves[0])
                after = perf_counter()
                if ready:
                    # Returns at once, with an error if the work failed or it is gone.
                    leaves[0].block_until_ready()
            except Exception as error:  # noqa: BLE001 - met where the output is read
                interrupts.pass_on(error)
                leaves = self._leaves = leaves[1:]
                continue
            if ready:
                self.finished = after
                self._leaves = ()
            else:
                self.unfinished = before
            return ready
        self.lost = True
        return True


def smallest_outputs(leaves: Sequence[Any], array: Any) -> list[Any]:
    """
    Return the smallest of *leaves* that are non-empty arrays of type *array* and exist,
    and a few more small ones, those at either end first: a training step returns its
    loss along with the state for the next step, some of which is as small.
    """
    half = min(_LEAVES, (len(leaves) + 1) // 2)
    last, first = leaves[: -half - 1 : -1], leaves[: min(half, len(leaves) - half)]
    found = [
        (leaf.size or math.inf, leaf)
        for output in chain.from_iterable(zip_longest(last, first))
        if isinstance(output, array)
        and not (leaf := underlying_array(output)).is_deleted()
    ]
    found.sort(key=itemgetter(0))
    return [
        leaf
        for number, (size, leaf) in enumerate(found[:_KEPT])
        if not number or size <= _SMALL
    ]


def queues(leaf: Any, *, across: bool) -> tuple[Hashable, ...]:
    """
    Return the queues in which the work that produces *leaf*, an output, waits.

    An accelerator runs programs in the order of their dispatch. The CPU keeps that
    order for each dispatching thread only, and *across* devices, as JAX 0.4 may: work
    then has a second queue, and must be next in both. What waits on devices of other
    processes is not known here.
    """
    found: list[Hashable] = []
    for device in leaf.sharding.addressable_devices:
        if device.platform != "cpu":
            found.append(device)
            continue
        thread = get_ident()
        found += [(device, thread), thread] if across else [(device, thread)]
    return tuple(found)


def runs_on_host_cpu(leaf: Any) -> bool:
    """Return whether *leaf* is produced by the processor that runs Python."""
    return any([device.platform == "cpu" for device in leaf.devices()])


def unready(leaves: Sequence[Any], array: Any, *, limit: int) -> list[DeviceWork]:
    """Return the work behind those of *leaves* that are not ready yet."""
    ends = leaves if len(leaves) <= limit else chain(leaves[:8], leaves[8 - limit :])
    arrays = [underlying_array(leaf) for leaf in ends if isinstance(leaf, array)]
    found = [DeviceWork((made,)) for made in arrays if not is_ready_or_deleted(made)]
    for work in found:
        work.look()
    return found


SITE = "sampling"

# A window closes after this many seconds or programs, whatever it still waits for.
_SECONDS = 2.0
_PROGRAMS = 256


class CallStart:
    """A sampled call in progress, *started* by `time.perf_counter`."""

    __slots__ = ("_place", "_taken", "arm", "counted", "jitted", "started")

    def __init__(
        self, arm: Arm, counted: CountedFunction, jitted: AnyCall, frame: FrameType
    ) -> None:
        self.arm = arm
        self.counted = counted
        self.jitted = jitted
        self._taken = call_count(counted) + 1  # this call has not been counted yet
        self._place = _place(frame)
        self.started = perf_counter()

    def matches(self, fun: object, frame: FrameType) -> bool:
        """Return whether it is this call that has returned, and not a later one."""
        return (
            fun is self.jitted
            and call_count(self.counted) == self._taken
            and _place(frame) == self._place
        )


class CallEnd(NamedTuple):
    """
    A sampled call that has returned from JAX's fast path.

    Attributes:
        ended: `time.perf_counter` at its return.
        work: its work on the device, if it has outputs.
        previous: the work dispatched before it to the same queue, `None` if unknown.
        since: `time.thread_time` at its return, if the work is on the same processor.
    """

    begun: CallStart
    ended: float
    work: DeviceWork | None
    previous: DeviceWork | None
    since: float | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any


class DispatchWindow:
    """
    Observes dispatched programs while it is open, by JAX's post-call hook in *place*,
    but for those that leave the fast path, as *missed* counts; *on_end* is called with
    each sampled call that has returned, on its thread. While some are *waiting*, it
    stays open; calling threads have *spent* so many processor seconds here.
    """

    def __init__(
        self,
        jax: Any,
        place: PostCallHook,
        on_end: Callable[[CallEnd], None],
        missed: Callable[[], int],
        guard: Guard,
    ) -> None:
        self._array = jax.Array
        self._leaves = jax.tree_util.tree_leaves
        self._across = orders_across_devices(jax)
        self._place = place
        self._on_end = on_end
        self._count_missed = missed
        self._guard = guard
        self._begun: dict[int, CallStart] = {}
        self._last: dict[Hashable, DeviceWork | None] = {}
        self._missed = 0
        self._programs = 0
        self._until = 0.0
        # One object, to be recognised in JAX's hook.
        self._hook = self._see
        self.waiting: set[Arm] = set()
        self.spent = 0.0

    def begin(
        self, arm: Arm, counted: CountedFunction, jitted: AnyCall, frame: FrameType
    ) -> None:
        """Start a sampled call from *frame*; `Arm.begin` calls this last."""
        if not self._open():
            return
        for work in list(self._last.values()):
            if work is not None:
                work.look()
        self._begun[get_ident()] = CallStart(arm, counted, jitted, frame)

    def close(self) -> None:
        """Drop everything, and release JAX's hook."""
        self._until = 0.0
        self._place.leave(self._hook)
        self._begun.clear()
        self._last.clear()
        self.waiting.clear()

    def expire(self) -> None:
        """Close the window if its time is over."""
        if self._until and perf_counter() > self._until:
            self.close()

    def _open(self) -> bool:
        if not self._place.take(self._hook):
            return False
        if not self._until:
            self._until = perf_counter() + _SECONDS
            self._programs = 0
            self._missed = self._count_missed()
        return True

    def _see(
        self, fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any
    ) -> None:
        now = perf_counter(), thread_time()
        try:
            # Closed by another thread, but still installed in this one.
            if not self._until:
                self._place.leave(self._hook)
                return
            begun = self._begun.pop(get_ident(), None)
            # The frame that made the call; ours is above it only now.
            if begun is not None and not begun.matches(fun, sys._getframe(1)):  # noqa: SLF001
                begun = None
            self._take(begun, args, kwargs, outputs, now)
        except Exception:  # noqa: BLE001 - contained: the call has been made
            self.close()
            self._guard.failed(SITE)
        self.spent += thread_time() - now[1]

    def _take(
        self,
        begun: CallStart | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Any,
        now: tuple[float, float],
    ) -> None:
        ended, busy = now
        leaves = smallest_outputs(self._leaves(outputs), self._array)
        if not leaves:
            # It may have occupied any device.
            self._last.clear()
            work, previous, since = None, None, None
        else:
            work, found = DeviceWork(leaves), queues(leaves[0], across=self._across)
            work.look()
            previous = self._before(found) if begun is not None else None
            since = busy if runs_on_host_cpu(leaves[0]) else None
            for queue in found:
                self._last[queue] = work
        self._programs += 1
        if begun is not None:
            ending = CallEnd(begun, ended, work, previous, since, args, kwargs, outputs)
            self._on_end(ending)
        if not self.waiting or self._programs >= _PROGRAMS or ended > self._until:
            self.close()

    def _before(self, found: tuple[Hashable, ...]) -> DeviceWork | None:
        """Return the previous work in all queues of *found*, if it is the same."""
        missed = self._count_missed()
        if missed != self._missed:
            self._missed = missed
            return None
        before = {self._last.get(queue) for queue in found}
        previous = before.pop()
        if before or previous is None:
            return None
        previous.look()
        return previous


def _place(frame: FrameType) -> tuple[int, int]:
    """Return numbers that identify a frame and its position, without keeping it."""
    return id(frame), frame.f_lasti


# Seconds between two calls that are seen. One is usually in flight for longer if the
# program is far ahead.
_EVERY = 0.5

Begin = Callable[["DispatchProbe", CountedFunction, AnyCall, FrameType], None]


class DispatchProbe:
    """Sees what the next call of one object dispatches; *then* waits for the next."""

    __slots__ = ("_begin", "function", "then")

    def __init__(self, begin: Begin, function: Function, then: Arm | None) -> None:
        self._begin = begin
        self.function = function
        self.then = then

    def begin(
        self, counted: CountedFunction, jitted: AnyCall, frame: FrameType, /
    ) -> None:
        """Pass on the call that starts."""
        if self.then is not None:
            arm(counted, self.then)
        self._begin(self, counted, jitted, frame)


class RunAhead:
    """Follows what the program dispatches to devices of all processes of its job."""

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
        Return for how many seconds the device has certainly had work, and none; see to
        it that another call is seen. For one thread.
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
        return sum([of.objects.calls + of.missed for of in self._spanning()])
