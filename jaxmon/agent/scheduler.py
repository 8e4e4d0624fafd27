"""
The threads on which the parts of an agent work, beside the program's calls and scrapes.

One does what is short, at its time: it polls what is under way, and runs short
routines. Another does what may take long, one job after the other. While a job takes
more than a second and others wait, a second joins it, and a third, so that a directory
or a driver that hangs delays nothing else. They start when first needed.

No thread blocks inside JAX. A thread blocked in C++ on a device crashes the process if
the interpreter exits first; one that sleeps between polls does not, follows several
devices at once, and knows the precision of its times.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from _queue import Empty, SimpleQueue
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Protocol, TypeAlias, TypeVar

from jaxmon.agent.guard import Guard
from jaxmon.clocks import monotonic, perf_counter, process_time, thread_time
from jaxmon.threads import DaemonThread, RLock, current, unlist


Turn: TypeAlias = Callable[[], float | None]
"""Returns the seconds until its next call, `None` if there is none."""
T = TypeVar("T")

SITE = "scheduler"

_TICKER, _HAND = "jaxmon-scheduler", "jaxmon-worker"

# A job that takes longer does not delay others.
_LONG_SECONDS = 1.0
_MOST_THREADS = 3

_SET_TIMER_SLACK = 29  # option of prctl, in nanoseconds, for the calling thread


class JobSource(Protocol):
    """What has jobs, each of which may take long; *name* is a site."""

    name: str

    def turn(self) -> None:
        """Do the next job. Raises nothing."""


# Processor time for work that can wait: some at once, so that a short program is known
# as well, and then a share of what the process takes.
_AT_ONCE_SECONDS, _SHARE = 0.02, 0.001


class WorkBudget:
    """Processor time for work of ours that can wait until someone asks for it."""

    def __init__(self) -> None:
        self._spent = 0.0

    def covers(self) -> bool:
        """Return whether more may be spent now."""
        return self._spent < _AT_ONCE_SECONDS + _SHARE * process_time()

    def spend(self, since: float) -> None:
        """Note what the calling thread has used since its `thread_time` was *since*."""
        self._spent += max(thread_time() - since, 0.0)


class ScheduledTurn:
    """Something to do at the time *due*, or earlier by *early* seconds."""

    def __init__(self, pause: float, turn: Turn, early: float) -> None:
        self.pause = pause
        self.due = perf_counter() + pause
        self.early = early
        self.turn: Turn | None = turn


class JobThread:
    """A thread for jobs, and since when it does the present one, 0 if it does none."""

    def __init__(self) -> None:
        self.thread: DaemonThread | None = None
        self.since = 0.0


class Scheduler:
    """
    Runs the turns and jobs of an agent's parts. *hangs*: a worker that stops has a job
    that it does not wait for; *used*: processor seconds of the thread for what is
    short, until its latest turn was over: the next one also takes what waking up takes.
    """

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.budget = WorkBudget()
        self.hangs = False
        self.used = 0.0
        self._stopped = False
        self._lock = RLock()
        # For what is short. Nothing is put in the queue but to end its sleep.
        self._ticker: DaemonThread | None = None
        self._entries: list[ScheduledTurn] = []
        self._fresh: deque[ScheduledTurn] = deque()
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._sleeps_until = -inf
        # For what may take long.
        self._hands: list[JobThread] = []
        self._ready: SimpleQueue[JobSource | None] = SimpleQueue()
        self._relieves = False

    def later(
        self, pause: float, turn: Turn, *, site: str, early: float = 0.0
    ) -> ScheduledTurn | None:
        """
        Call *turn*, which is short, after so many seconds, and again after as many as
        it returns. Never blocks.

        Returns:
            What to clear the `turn` of, so that it is not called; `None` if that is
            never called. That no thread can be started is a failure at *site*.
        """
        if self._stopped:
            return None
        entry = ScheduledTurn(pause, turn, early)
        self._fresh.append(entry)
        # Waking it costs more than what most of this takes.
        if entry.due < self._sleeps_until:
            self._wakes.put(None)
        if self._ticker is None and not self._start_ticker(site):
            entry.turn = None
            return None
        return entry

    def ready(self, worker: JobSource, *, urgent: bool = False) -> None:
        """Have a thread do the next job of *worker*: at once if that is *urgent*."""
        self._ready.put(worker)
        self.prepare(worker.name)
        hands = self._hands
        if not hands or len(hands) >= _MOST_THREADS:
            return
        if not all([hand.since for hand in hands]):
            return
        if urgent:
            self._hire(worker.name)
        elif not self._relieves:
            self._relieves = True
            self.later(_LONG_SECONDS, self._relieve, site=SITE)

    def again(self, worker: JobSource) -> None:
        """Have the thread that calls this do the next job of *worker* in its turn."""
        if current() is not None:  # not in a child that the job has forked
            self._ready.put(worker)

    def prepare(self, site: str) -> None:
        """Start the thread for jobs, unless it runs; a failure is one at *site*."""
        if not self._hands:
            self._hire(site)

    @property
    def works(self) -> bool:
        """Whether a thread takes jobs."""
        threads = [hand.thread for hand in list(self._hands)]
        return any([thread is not None and thread.is_alive() for thread in threads])

    @staticmethod
    def is_current() -> bool:
        """Return whether this runs on a thread of a scheduler."""
        thread = current()
        return thread is not None and thread.name in {_TICKER, _HAND}

    def stop(self) -> None:
        """Stop and wait for the threads, without those waited for in vain."""
        with self._lock:
            self._stopped = True
            ticker, self._ticker = self._ticker, None
            hands, self._hands = self._hands, []
        self._wakes.put(None)
        for _ in range(_MOST_THREADS):
            self._ready.put(None)
        threads = [hand.thread for hand in hands if not (self.hangs and hand.since)]
        for thread in (ticker, *threads):
            if thread is not None and thread is not current():
                self.guard.join(thread)

    def _start_ticker(self, site: str) -> bool:
        with self._lock:
            if self._ticker is not None or self._stopped:
                return not self._stopped
            work = functools.partial(self.guard.run, SITE, self._tick)
            # Stored before it starts: the garbage collector may need it meanwhile, on
            # this thread.
            self._ticker = thread = DaemonThread(_TICKER, work)
            if not self.guard.start(thread, site):
                self._ticker = None
                self._fresh.clear()
            return self._ticker is not None

    def _tick(self) -> None:
        _be_punctual()
        self.used = thread_time()
        # Not in a child that something has forked: there, this is no thread of ours.
        while not self._stopped and current():
            self._take_fresh()
            now = perf_counter()
            for entry in [e for e in self._entries if e.due - e.early <= now]:
                self._run(entry)
                # This frame would keep it alive, with everything it refers to, while
                # waiting.
                del entry
            self._entries = [entry for entry in self._entries if entry.turn is not None]
            next_ = min(self._entries, key=lambda entry: entry.due, default=None)
            self._sleeps_until = inf if next_ is None else next_.due
            # What came meanwhile has not ended the sleep.
            if not self._fresh:
                timeout = None
                if next_ is not None:
                    # At most the pause: the program may have replaced the clock.
                    left = next_.due - perf_counter()
                    timeout = min(max(left, 0.0), next_.pause)
                del next_
                with contextlib.suppress(Empty):
                    next_item(self._wakes, timeout)
            self._sleeps_until = -inf
        self._entries = []

    def _take_fresh(self) -> None:
        while self._fresh:
            self._entries.append(self._fresh.popleft())
        with contextlib.suppress(Empty):
            while True:
                self._wakes.get_nowait()

    def _run(self, entry: ScheduledTurn) -> None:
        pause, turn = None, entry.turn
        if turn is not None and not self._stopped:
            try:
                pause = turn()
            except BaseException:  # noqa: BLE001 - contained: our own thread goes on
                self.guard.failed(SITE, stays_on=True)
        self.used = thread_time()
        if pause is None:
            entry.turn = None
        else:
            entry.pause, entry.due = pause, perf_counter() + pause

    def _hire(self, site: str) -> None:
        with self._lock:
            hands = self._hands
            if self._stopped or not all([hand.since for hand in hands]):
                return
            hand = JobThread()
            body = functools.partial(self._work, hand)
            work = functools.partial(self.guard.run, SITE, body)
            hand.thread = DaemonThread(_HAND, work)
            self._hands = [*hands, hand]
            if not self.guard.start(hand.thread, site):
                self._hands = hands

    def _relieve(self) -> float | None:
        """Start another thread if all are busy with something long, and more waits."""
        since = [hand.since for hand in list(self._hands)]
        if self._ready.empty() or not all(since) or len(since) >= _MOST_THREADS:
            self._relieves = False
            return None
        if (left := _LONG_SECONDS - (monotonic() - max(since, default=0.0))) > 0:
            return left
        self._relieves = False
        self._hire(SITE)
        return None

    def _work(self, hand: JobThread) -> None:
        while not self._stopped and current():
            worker = next_item(self._ready, None)
            if worker is None:
                break
            hand.since = monotonic()
            try:
                worker.turn()
            finally:
                hand.since = 0.0
            # As above.
            del worker
            if not current():  # a child that the job has forked: the lock may be held
                break
            with self._lock:
                if len(self._hands) > 1:  # the other has time again, or will have
                    others = [other for other in self._hands if other is not hand]
                    if self._ready.empty() and not all(
                        [other.since for other in others]
                    ):
                        self._hands = others
                        break


def next_item(queue: SimpleQueue[T], timeout: float | None) -> T:
    """
    Wait for the next item of *queue*, at most *timeout* seconds, forever if `None`.

    With a timeout, for the only thread that takes from it. Python 3.11 may wait forever
    if a short timeout passes before it starts to wait, but not once the queue was found
    empty.

    Raises:
        queue.Empty: nothing came.
    """
    with contextlib.suppress(Empty):
        return queue.get_nowait()
    unlist()
    return queue.get(timeout=timeout)


def _be_punctual() -> None:
    """Reduce this thread's timer slack, which is 50 µs by default on Linux."""
    with contextlib.suppress(AttributeError, OSError):  # another system
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, *map(ctypes.c_ulong, (1, 0, 0, 0)))
