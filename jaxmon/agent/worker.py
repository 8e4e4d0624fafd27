"""A background thread for work that must not run in a user's call or a scrape."""

from __future__ import annotations

import contextlib
import functools
import random
from _queue import Empty, SimpleQueue
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from jaxmon.agent.counters import Tally
from jaxmon.agent.guard import Guard
from jaxmon.clocks import monotonic, thread_time
from jaxmon.threads import DaemonThread, Event, RLock, current, unlist


Job: TypeAlias = Callable[[], None]
T = TypeVar("T")

# Maximum share of the thread's time for the routine; beyond it, it runs less often.
_SHARE = 0.01

# A routine that keeps failing waits up to this many times as long.
_MOST_PATIENCE = 16

_TURN_SECONDS = 0.05


class Worker:
    """
    A daemon thread that runs queued jobs, and one periodic routine.

    The thread starts when first needed. Failures are contained by *guard*: a site that
    keeps failing is disabled.

    Args:
        name: name of the thread, and the site under which failures are counted.
        guard: contains failures.
        every: seconds between two runs of *routine*, more if the routine would take
            over a hundredth of the time.
        routine: called periodically.
        limit: maximum queued jobs; more are refused.
        gather: seconds for which the first job waits for others: waking the thread
            costs the program more than queueing a job.
        spread: fraction of *every* by which the time between two runs varies at random,
            so that they do not synchronise with the program.
        gives_up: a routine that keeps failing disables the site; otherwise it is
            retried forever with backoff, for routines that may recover.
        theirs: jobs are the program's code on purpose, which may raise anything.

    Attributes:
        refused: jobs refused because the queue was full.
    """

    def __init__(  # noqa: PLR0913 - options, each with a default
        self,
        name: str,
        guard: Guard,
        *,
        every: float = 0,
        routine: Job | None = None,
        limit: int = 64,
        gather: float = 0,
        spread: float = 0,
        gives_up: bool = True,
        theirs: bool = False,
    ) -> None:
        self.refused = Tally()
        self._name = name
        self._guard = guard
        self._every = every if routine is not None else 0
        self._routine = routine
        self._limit = limit
        self._gather = gather
        self._spread = spread
        self._gives_up = gives_up
        self._theirs = theirs
        self._patience = 1
        # A separate one: the program may have seeded the shared one.
        self._random = random.Random()  # noqa: S311 - nothing secret
        # Its put() may be reentered on one thread by the garbage collector.
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # What is in it ends the wait for other jobs.
        self._hurry: SimpleQueue[None] = SimpleQueue()
        self._thread: DaemonThread | None = None
        self._lock = RLock()
        self._stopped = False

    def start(self) -> None:
        """
        Start the thread, once. Raises nothing: if the thread cannot start, that is a
        failure of this site.
        """
        with self._lock:
            if self._thread is not None or self._stopped:
                return
            thread = DaemonThread(
                f"jaxmon-{self._name}",
                functools.partial(self._guard.run, self._name, self._run),
            )
            # Stored before it starts: the garbage collector may submit a job meanwhile,
            # on this thread.
            self._thread = thread
            if not self._guard.start(thread, self._name):
                self._thread = None

    def stop(self, *, wait: bool = True) -> None:
        """Drop queued jobs and stop the thread; *wait* for it within the deadline."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        if thread is None:
            return
        self._jobs.put(None)
        self.end_gathering()
        if wait and thread is not current() and thread.is_alive():
            self._guard.join(thread)
        self._discard()
        # For a thread that is still busy.
        self._jobs.put(None)
        # Last: if an interrupt arrives before, the next call completes the stop.
        self._thread = None

    def finish(self) -> None:
        """Do what is queued, within the deadline, and stop the thread."""
        try:
            self.drain(self._guard.deadline.portion())
        finally:
            self.stop(wait=False)

    def drain(self, timeout: float) -> bool:
        """
        Wait until the jobs submitted so far are done, at most *timeout* seconds; return
        whether they are. On the worker's own thread, they are not.
        """
        if self._thread is None and self._jobs.empty():
            return True
        own = self._thread is not None and self._thread is current()
        if own or self._stopped or not self._guard.on(self._name):
            return False
        done = Event()
        # Not by submit(): the queue may be full.
        self._jobs.put(done.set)
        self.end_gathering()
        self.start()
        # Counts turns, not time: the program may have replaced Python's clock.
        for _ in range(int(timeout / _TURN_SECONDS) + 1):
            if done.wait(_TURN_SECONDS):
                return True
            # If the site was disabled or stopped meanwhile, nothing more happens.
            thread = self._thread
            if thread is None or not thread.is_alive():
                break
        return done.is_set()

    def submit(self, job: Job) -> bool:
        """Queue *job*; return whether it was accepted. Never blocks."""
        if self._stopped or self._name in self._guard.off:
            return False
        waiting = self._jobs.qsize()
        if waiting >= self._limit:
            self.refused.add()
            return False
        if waiting >= self._limit // 2:
            self.end_gathering()
        self._jobs.put(job)
        if self._thread is None:
            self.start()
        return True

    def _run(self) -> None:
        rest, waited = self._pause(), False
        due = monotonic() + rest
        # Not in a child that a job has forked: there, this is no thread of ours.
        while not self._stopped and self._guard.on(self._name) and current():
            timeout = clamp_wait(due - monotonic(), rest) if self._every else None
            if timeout == 0 or waited:
                before = thread_time()
                fine = self._do(self._routine, stays_on=not self._gives_up)
                spent = thread_time() - before
                rest, waited = max(self._rest(fine=fine), spent / _SHARE), False
                due = monotonic() + rest
                continue
            idle = self._jobs.empty()
            try:
                job = next_item(self._jobs, timeout)
            except Empty:
                waited = True  # whatever the clock says
                continue
            if idle and self._gather and not self._gathered():
                break
            self._do(job)
            # This frame would keep the job alive, with everything it refers to, while
            # waiting.
            del job
        if not self._stopped:  # disabled: no other thread will run the queued jobs
            self._discard()

    def end_gathering(self) -> None:
        """Have the jobs done that wait for others."""
        if self._gather and self._hurry.empty():
            self._hurry.put(None)

    def _gathered(self) -> bool:
        """Wait for other jobs; return whether they are to be done."""
        with contextlib.suppress(Empty):
            next_item(self._hurry, self._gather)
            while True:
                self._hurry.get_nowait()
        return not self._stopped

    def _discard(self) -> None:
        """
        Drop queued jobs: they may refer to objects that the program wants to free.
        """
        with contextlib.suppress(Empty):
            while True:
                self._jobs.get_nowait()

    def _pause(self) -> float:
        return self._every * (1 + self._spread * self._random.uniform(-1, 1))

    def _rest(self, *, fine: bool) -> float:
        """
        Return the seconds until the next run of the routine, after one that was *fine*
        or not.
        """
        again = not fine and not self._gives_up
        self._patience = min(2 * self._patience, _MOST_PATIENCE) if again else 1
        return self._pause() * self._patience

    def _do(self, job: Job | None, *, stays_on: bool = False) -> bool:
        """Run *job*; return whether it succeeded."""
        if job is None:
            return True
        try:
            job()
        except BaseException:  # noqa: BLE001 - contained: our own thread goes on
            self._guard.failed(self._name, stays_on=stays_on, theirs=self._theirs)
            return False
        return True


def clamp_wait(seconds: float, most: float) -> float:
    """
    Return *seconds* as a waiting time, *most* at most: the program may have replaced
    the clock with one that steps back or returns NaN.
    """
    return max(seconds, 0.0) if seconds < most else most


def next_item(queue: SimpleQueue[T], timeout: float | None) -> T:
    """
    Wait for the next item of *queue*, at most *timeout* seconds, forever if `None`.

    For the only thread that takes from it. Python 3.11 may wait forever if a short
    timeout passes before it starts to wait, but not once the queue was found empty.

    Raises:
        queue.Empty: nothing came.
    """
    with contextlib.suppress(Empty):
        return queue.get_nowait()
    unlist()
    return queue.get(timeout=timeout)
