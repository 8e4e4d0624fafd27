"""
A short time in which every program is seen as it is dispatched.

What a sampled call does with the device can be told from what came before it only if
that is known: its own function's last call, another function's, an operation on an
array, the shadow of anything that jaxmon does not count. While a window is open, JAX
shows all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from threading import get_ident
from time import perf_counter, thread_time
from types import FrameType
from typing import Any, NamedTuple

from jaxmon.agent.counted import Arm, CountedFunction, taken
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.posthook import PostHook, orders_across_devices
from jaxmon.agent.sampling.work import Work, on_host, queues, small


SITE = "sampling"

# A window ends after so many seconds or programs, whatever it still waits for.
_SECONDS = 2.0
_PROGRAMS = 256


class Begun:
    """
    A sampled call between its beginning and its end, on one thread.

    Attributes:
        arm: what waited for it.
        counted: the object that is called.
        jitted: JAX's object in it.
        started: `time.perf_counter` just before the call.
    """

    __slots__ = ("_place", "_taken", "arm", "counted", "jitted", "started")

    def __init__(
        self,
        arm: Arm,
        counted: CountedFunction,
        jitted: Callable[..., Any],
        frame: FrameType,
    ) -> None:
        self.arm = arm
        self.counted = counted
        self.jitted = jitted
        self._taken = taken(counted) + 1  # this one counts in a moment
        self._place = _place(frame)
        self.started = perf_counter()

    def is_this(self, fun: object, frame: FrameType) -> bool:
        """
        Tell whether the call of *fun* from *frame* that has just returned is this one,
        and not a later one after an error or a miss.
        """
        return (
            fun is self.jitted
            and taken(self.counted) == self._taken
            and _place(frame) == self._place
        )


class Ended(NamedTuple):
    """
    A sampled call that has returned, off the fast path of JAX.

    Attributes:
        begun: how it began.
        ended: `time.perf_counter` at its return.
        work: what it gave to the device, if it has outputs.
        previous: the work that was dispatched before it, to the same queue; `None` if
            that is not known.
        since: `time.thread_time` at its return, if the work is on the same processor.
        args: the positional arguments.
        kwargs: the keyword arguments.
        outputs: what it returns.
    """

    begun: Begun
    ended: float
    work: Work | None
    previous: Work | None
    since: float | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any


class Window:
    """
    Sees programs go by, while it is open.

    Args:
        jax: the module.
        place: where JAX shows them.
        on_end: given each sampled call that has returned, on its thread. Calls
            that JAX did not answer from its fast path never come.
        missed: how many calls left the fast path so far; these are not seen.
        guard: contains failures.

    Attributes:
        waiting: those whose next call is to find the window open.
        spent: processor seconds that calling threads have spent here.
    """

    def __init__(
        self,
        jax: Any,
        place: PostHook,
        on_end: Callable[[Ended], None],
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
        self._begun: dict[int, Begun] = {}
        self._last: dict[Hashable, Work | None] = {}
        self._missed = 0
        self._programs = 0
        self._until = 0.0
        # One object, to be recognised in JAX's place.
        self._hook = self._see
        self.waiting: set[Arm] = set()
        self.spent = 0.0

    def begin(
        self,
        arm: Arm,
        counted: CountedFunction,
        jitted: Callable[..., Any],
        frame: FrameType,
    ) -> None:
        """
        Let a sampled call from *frame* begin, opening the window if it is closed. To
        be called by `Arm.begin`, last.
        """
        if not self._open():
            return
        for work in list(self._last.values()):
            if work is not None:
                work.look()
        self._begun[get_ident()] = Begun(arm, counted, jitted, frame)

    def close(self) -> None:
        """Forget everything, and leave JAX's place to others."""
        self._until = 0.0
        self._place.leave(self._hook)
        self._begun.clear()
        self._last.clear()
        self.waiting.clear()

    def expire(self) -> None:
        """Close a window whose time is over."""
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
            if not self._until:  # closed by another thread, and still in this one's
                self._place.leave(self._hook)
                return
            begun = self._begun.pop(get_ident(), None)
            # The frame that made the call; ours stands on it only now.
            if begun is not None and not begun.is_this(fun, sys._getframe(1)):  # noqa: SLF001
                begun = None
            self._take(begun, args, kwargs, outputs, now)
        except Exception:  # noqa: BLE001 - contained: the call has been made
            self.close()
            self._guard.failed(SITE)
        self.spent += thread_time() - now[1]

    def _take(
        self,
        begun: Begun | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Any,
        now: tuple[float, float],
    ) -> None:
        ended, busy = now
        leaves = small(self._leaves(outputs), self._array)
        if not leaves:
            # It may have occupied any device.
            self._last.clear()
            work, previous, since = None, None, None
        else:
            work, found = Work(leaves), queues(leaves[0], across=self._across)
            work.look()
            previous = self._before(found) if begun is not None else None
            since = busy if on_host(leaves[0]) else None
            for queue in found:
                self._last[queue] = work
        self._programs += 1
        if begun is not None:
            ending = Ended(begun, ended, work, previous, since, args, kwargs, outputs)
            self._on_end(ending)
        if not self.waiting or self._programs >= _PROGRAMS or ended > self._until:
            self.close()

    def _before(self, found: tuple[Hashable, ...]) -> Work | None:
        """Return the work that came before in all queues of *found*, if it is one."""
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
    """Return a frame, and what it is doing, as numbers: neither is kept."""
    return id(frame), frame.f_lasti
