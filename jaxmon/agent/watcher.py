"""
A polling thread.

It never blocks inside JAX. A thread blocked in C++ on a device crashes the process if
the interpreter exits first; a thread that sleeps between polls does not, follows
several devices at once, and knows the precision of its times.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from _queue import Empty, SimpleQueue
from typing import Protocol

from jaxmon.agent.counters import Tally
from jaxmon.agent.guard import Guard
from jaxmon.agent.worker import clamp_wait, next_item
from jaxmon.clocks import perf_counter, thread_time
from jaxmon.threads import DaemonThread, RLock, current


# Maximum time between two polls; no item asks for more.
_MOST_SECONDS = 1.0

_SET_TIMER_SLACK = 29  # option of prctl, in nanoseconds, for the calling thread


class Watched(Protocol):
    """Something to poll for completion."""

    def look(self) -> float | None:
        """Poll, and return the seconds until the next poll, `None` when finished."""
        ...


class Watcher:
    """
    Polls up to *limit* items on its own daemon thread.

    Args:
        name: name of the thread, and the site under which failures are counted.
        guard: contains failures.
        limit: maximum number of items; more are refused.

    Attributes:
        refused: items refused because the limit was reached.
        spent: processor seconds that the thread has used.
    """

    def __init__(self, name: str, guard: Guard, *, limit: int = 16) -> None:
        self.refused = Tally()
        self.spent = 0.0
        self._name = name
        self._guard = guard
        self._limit = limit
        self._submitted: SimpleQueue[Watched | None] = SimpleQueue()
        self._watched: list[tuple[float, Watched]] = []
        self._thread: DaemonThread | None = None
        self._lock = RLock()
        self._stopped = False

    def submit(self, watched: Watched) -> bool:
        """Start polling *watched*; return whether it was accepted. Never blocks."""
        if self._stopped or self._name in self._guard.off:
            return False
        if len(self._watched) + self._submitted.qsize() >= self._limit:
            self.refused.add()
            return False
        self._submitted.put(watched)
        if self._thread is None:
            self._start()
        return True

    def stop(self) -> None:
        """Drop all items and stop the thread; wait for it within the deadline."""
        with self._lock:
            self._stopped = True
            thread, self._thread = self._thread, None
        if thread is None:
            return
        self._submitted.put(None)
        if thread is not current():
            self._guard.join(thread)

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None or self._stopped:
                return
            thread = DaemonThread(
                f"jaxmon-{self._name}",
                functools.partial(self._guard.run, self._name, self._run),
            )
            if self._guard.start(thread, self._name):
                self._thread = thread
            else:
                self._forget()

    def _run(self) -> None:
        _be_punctual()
        while not self._stopped and self._guard.on(self._name):
            due = min((due for due, _ in self._watched), default=None)
            timeout = (
                None if due is None else clamp_wait(due - perf_counter(), _MOST_SECONDS)
            )
            try:
                fresh = next_item(self._submitted, timeout)
            except Empty:
                fresh = None
            if fresh is not None:
                self._watched.append((0.0, fresh))
                # This frame would keep it alive, with everything it refers to, while
                # waiting.
                del fresh
            if not self._stopped:
                self._look()
            self.spent = thread_time()
        self._forget()

    def _forget(self) -> None:
        """Drop all current and pending items."""
        self._watched = []
        with contextlib.suppress(Empty):
            while True:
                self._submitted.get_nowait()

    def _look(self) -> None:
        """Poll all items that are due."""
        now = perf_counter()
        kept = []
        for due, watched in self._watched:
            delay: float | None = due - now
            if due <= now:
                delay = self._delay(watched)
            if delay is not None:
                kept.append((perf_counter() + delay, watched))
        self._watched = kept

    def _delay(self, watched: Watched) -> float | None:
        try:
            return watched.look()
        except Exception:  # noqa: BLE001 - contained: our own thread goes on
            self._guard.failed(self._name)
            return None


def _be_punctual() -> None:
    """Reduce this thread's timer slack, which is 50 µs by default on Linux."""
    with contextlib.suppress(AttributeError, OSError):  # another system
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, *map(ctypes.c_ulong, (1, 0, 0, 0)))
