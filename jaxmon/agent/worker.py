"""What a part of an agent has its scheduler do: jobs and a routine, or polls."""

from __future__ import annotations

import contextlib
import functools
import random
from _queue import Empty, SimpleQueue
from collections.abc import Callable
from math import inf
from typing import Protocol, TypeAlias

from jaxmon.agent.scheduler import ScheduledTurn, Scheduler
from jaxmon.clocks import thread_time
from jaxmon.exposition.families import Tally
from jaxmon.threads import Event


Job: TypeAlias = Callable[[], None]

# Maximum share of a thread's time for a routine; beyond it, it runs less often.
_SHARE = 0.01

# A routine that keeps failing waits up to this many times as long.
_MOST_PATIENCE = 16

# What runs seldom may run by so much of its pause earlier, when the thread is awake.
_EARLY = 0.1

_DRAINING_SECONDS = 0.05


class Worker:
    """
    The jobs of one part, done one after the other on the thread for what may take long,
    and its periodic routine.

    Failures at the site *name* are contained by the guard: a site that keeps failing is
    disabled.

    Args:
        every: seconds between two runs of *routine*, more if the routine would take
            over a hundredth of the time.
        is_short: whether the routine is run by the thread for what is short.
        limit: maximum queued jobs; more are `refused`.
        gather: seconds for which the first job waits for others: waking the thread
            costs the program more than queueing a job.
        spread: fraction of *every* by which the time between two runs varies at random,
            so that they do not synchronise with the program.
        gives_up: a routine that keeps failing disables the site; otherwise it is
            retried forever with backoff, for routines that may recover.
        theirs: jobs are the program's code on purpose, which may raise anything.
    """

    def __init__(  # noqa: PLR0913 - options, each with a default
        self,
        name: str,
        scheduler: Scheduler,
        *,
        every: float = 0,
        routine: Job | None = None,
        is_short: bool = False,
        limit: int = 64,
        gather: float = 0,
        spread: float = 0,
        gives_up: bool = True,
        theirs: bool = False,
    ) -> None:
        self.name = name
        self.every = every if routine is not None else 0
        self.refused = Tally()
        self._scheduler = scheduler
        self._guard = scheduler.guard
        self._routine = routine
        self._is_short = is_short
        self._limit = limit
        self._gather = gather
        self._spread = spread
        self._gives_up = gives_up
        self._theirs = theirs
        self._patience = 1
        # A separate one: the program may have seeded the shared one.
        self._random = random.Random()  # noqa: S311 - nothing secret
        # Its put() may be reentered on one thread by the garbage collector.
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._entry: ScheduledTurn | None = None
        self._is_due = False
        # Whether a thread has been asked to do the next job, or will be.
        self._queued = False
        # Set when the job that is done at present is done.
        self._done: Event | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to run the routine, once. Raises nothing: that fails at this site."""
        if self.every and self._entry is None and not self._stopped:
            self._rest(self._pause())

    def stop(self, *, wait: bool = True) -> None:
        """Drop queued jobs; *wait* for the one that is being done, if any."""
        self._stopped = True
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.turn = None
        self._discard()
        done = self._done
        if done is not None and not self._scheduler.is_current():
            if wait:
                done.wait(self._guard.deadline.portion())
                self._discard()
            self._scheduler.hangs |= not done.is_set()

    def finish(self) -> None:
        """Do what is queued, within the deadline, and stop."""
        try:
            self.drain(self._guard.deadline.portion())
        finally:
            self.stop(wait=False)

    def drain(self, timeout: float) -> bool:
        """
        Wait until the jobs submitted so far are done, at most *timeout* seconds; return
        whether they are. On a thread of the scheduler, they are not.
        """
        if self._is_over():
            return False
        if self._jobs.empty() and self._done is None:
            return True
        if self._scheduler.is_current():
            return False
        done = Event()
        # Not by submit(): the queue may be full.
        self._jobs.put(done.set)
        self._queue(urgent=True)
        # Counts turns, not time: the program may have replaced Python's clock.
        for _ in range(int(timeout / _DRAINING_SECONDS) + 1):
            if done.wait(_DRAINING_SECONDS):
                return True
            # If the site was disabled or stopped meanwhile, nothing more happens.
            if self._is_over() or not self._scheduler.works:
                break
        return done.is_set()

    def submit(self, job: Job, *, urgent: bool = False) -> bool:
        """Queue *job*; return whether it was accepted. Never blocks."""
        if self._stopped or self.name in self._guard.off:
            return False
        waiting = self._jobs.qsize()
        if waiting >= self._limit:
            self.refused.add()
            return False
        self._jobs.put(job)
        if urgent or not self._gather or waiting >= self._limit // 2:
            self._queue(urgent=urgent)
        elif not self._queued:
            self._queued = True
            pause, turn = self._gather, functools.partial(self._scheduler.ready, self)
            self._scheduler.later(pause, turn, site=self.name, early=pause / 2)
        return True

    def end_gathering(self) -> None:
        """Have the jobs done that wait for others."""
        if self._gather and not self._jobs.empty():
            self._queue()

    def turn(self) -> None:
        """Do the next job, or the routine; on a thread of the scheduler."""
        done = Event()
        # There is no call in here: of two threads, one does it.
        self._queued = False
        if self._done is not None:
            return
        self._done = done
        try:
            self._do_next()
        finally:
            self._done = None
            done.set()
        if self._is_due or not self._jobs.empty():
            self._queued = True
            self._scheduler.again(self)

    def _is_over(self) -> bool:
        return self._stopped or self.name in self._guard.off

    def _do_next(self) -> None:
        if self._is_over():
            self._is_due = False
            self._discard()
        elif self._is_due:
            self._is_due = False
            self._rest(self._run_routine())
        else:
            with contextlib.suppress(Empty):
                self._do(self._jobs.get_nowait())

    def _queue(self, *, urgent: bool = False) -> None:
        if urgent or self._gather or not self._queued:
            self._queued = True
            self._scheduler.ready(self, urgent=urgent)
        else:
            self._scheduler.prepare(self.name)  # if there was no thread left before

    def _rest(self, pause: float) -> None:
        if not self._stopped and pause < inf:
            early = 0.0 if self._is_short else pause * _EARLY
            turn, site = self._ring, self.name
            self._entry = self._scheduler.later(pause, turn, site=site, early=early)

    def _ring(self) -> float | None:
        if self._is_over():
            return None
        if self._is_short:
            return self._run_routine()
        self._is_due = True
        self._queue()
        return None

    def _run_routine(self) -> float:
        """Run the routine; return the seconds until its next run."""
        before = thread_time()
        stays_on = not self._gives_up
        fine = self._routine is None or self._do(self._routine, stays_on=stays_on)
        return max(self._rests(fine=fine), (thread_time() - before) / _SHARE)

    def _discard(self) -> None:
        """
        Drop queued jobs: they may refer to objects that the program wants to free.
        """
        with contextlib.suppress(Empty):
            while True:
                self._jobs.get_nowait()

    def _pause(self) -> float:
        return self.every * (1 + self._spread * self._random.uniform(-1, 1))

    def _rests(self, *, fine: bool) -> float:
        """Return the seconds until the next run, after one that was *fine* or not."""
        again = not fine and not self._gives_up
        self._patience = min(2 * self._patience, _MOST_PATIENCE) if again else 1
        return self._pause() * self._patience

    def _do(self, job: Job, *, stays_on: bool = False) -> bool:
        try:
            job()
        except BaseException:  # noqa: BLE001 - contained: our own thread goes on
            self._guard.failed(self.name, stays_on=stays_on, theirs=self._theirs)
            return False
        return True


class Watched(Protocol):
    """Something to poll for completion."""

    def look(self) -> float | None:
        """Poll, and return the seconds until the next poll, `None` when finished."""


class Watcher:
    """Polls up to *limit* items on the thread for what is short, in `spent` seconds."""

    def __init__(self, name: str, scheduler: Scheduler, *, limit: int = 16) -> None:
        self.refused = Tally()
        self.spent = 0.0
        self._name = name
        self._scheduler = scheduler
        self._guard = scheduler.guard
        self._limit = limit
        # What each turn has, which is emptied when it is over.
        self._held: dict[int, list[Watched]] = {}
        self._stopped = False

    def submit(self, watched: Watched) -> bool:
        """Start polling *watched*; return whether it was accepted. Never blocks."""
        if self._stopped or self._name in self._guard.off:
            return False
        if len(self._held) >= self._limit:
            self.refused.add()
            return False
        held = [watched]
        self._held[id(held)] = held
        turn = functools.partial(self._look, held)
        if self._scheduler.later(0.0, turn, site=self._name) is None:
            self._forget()
            return False
        return True

    def stop(self) -> None:
        """Drop all items, without waiting for a poll."""
        self._stopped = True
        self._forget()

    def _look(self, held: list[Watched]) -> float | None:
        delay = None
        try:
            delay = held[0].look() if held else None
        except Exception:  # noqa: BLE001 - contained: our own thread goes on
            self._guard.failed(self._name)
        self.spent += thread_time() - self._scheduler.used
        if not self._guard.on(self._name):
            self._forget()
        elif delay is None:
            self._held.pop(id(held), None)
        return delay if held else None

    def _forget(self) -> None:
        while self._held:
            with contextlib.suppress(KeyError):
                self._held.popitem()[1].clear()
