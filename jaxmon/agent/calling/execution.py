"""
How long a device worked on a sampled call.

A device takes up a call's work when it was dispatched, or when its inputs
are there and the work before it is done, whichever comes last. Each of these moments is
known from two looks to lie between; where that leaves too much room, nothing is said.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

from jaxmon.agent.calling.work import Work


# Share of the result that may be uncertain. Its middle is then off by half of that,
# to either side alike.
_ROOM = 0.5
# Looks come in steps that grow with the time since the work began ...
_GROWTH = 0.08
# ... or, at work that comes before, with how long the function's own work takes.
_SHARE = 0.06
_SHORTEST = 5e-5
_LONGEST = 0.05
_LOOKS = 2000
"""Looks at one call, after which they become rare."""
_GIVEN_UP = 3600.0

_jitter = random.Random()  # noqa: S311 - spreads looks, hides nothing


class Pace:
    """
    What earlier samples of a function tell about when to look.

    Attributes:
        work: estimates of its execution, in seconds, exact or not.
        queue: how long its work waited for work before it, in seconds.
    """

    def __init__(self) -> None:
        self.work: deque[float] = deque(maxlen=8)
        self.queue: deque[float] = deque(maxlen=4)


class Execution:
    """
    Watches one sampled call until its work is done.

    Args:
        called: `time.perf_counter` when the call began and when it returned.
        before: the previous work on the device, and what the inputs wait for.
        work: its own.
        pace: of its function.
        tell: given the seconds, if they are known.
    """

    __slots__ = (
        "_before",
        "_ended",
        "_looks",
        "_pace",
        "_started",
        "_tell",
        "_waiting",
        "_work",
    )

    def __init__(
        self,
        called: tuple[float, float],
        before: Sequence[Work],
        work: Work,
        pace: Pace,
        tell: Callable[[float], None],
    ) -> None:
        self._started, self._ended = called
        self._before = before
        self._work = work
        self._pace = pace
        self._tell = tell
        self._waiting = [*before, work]
        self._looks = 0

    def look(self) -> float | None:
        """
        Look on; return when to do so again.
        """
        waiting = self._waiting
        while waiting and waiting[0].look():
            if waiting.pop(0).lost:
                return None
        if not waiting:
            self._conclude()
            return None
        now = perf_counter()
        self._looks += 1
        if now - self._ended > _GIVEN_UP:
            return None
        if self._looks > _LOOKS:
            return max(_LONGEST, (now - self._ended) * _GROWTH)
        return self._own_step(now) if len(waiting) == 1 else self._queue_step(now)

    def _own_step(self, now: float) -> float:
        elapsed = now - max([self._started, *(w.finished or 0.0 for w in self._before)])
        step = elapsed * _GROWTH * _jitter.uniform(0.5, 1.5)
        return min(max(step, _SHORTEST), _LONGEST)

    def _queue_step(self, now: float) -> float:
        pace = self._pace
        # Far from the end of the queue there is nothing to see.
        quiet = 0.5 * min(pace.queue, default=0.0) - (now - self._ended)
        if quiet > 0:
            return min(quiet, _LONGEST)
        shortest = min(pace.work, default=0.0)
        step = shortest * _SHARE or (now - self._ended) * _SHARE
        return min(max(step, _SHORTEST), _LONGEST)

    def _conclude(self) -> None:
        started = self._started
        early = max([started, *(work.unfinished for work in self._before)])
        late = max([started, *(work.finished or 0.0 for work in self._before)])
        finished = self._work.finished or 0.0
        if late > started:
            self._pace.queue.append(max(late - self._ended, 0.0))
        elif self._work.unfinished < started:
            # The device was idle, and done when the call returned.
            self._tell(self._ended - started)
            return
        least, most = self._work.unfinished - late, finished - early
        # Where the end of the work before was missed, the next looks come closer.
        self._pace.work.append(max((least + most) / 2, most / 4))
        if most - least <= _ROOM * most:
            self._tell((least + most) / 2)


class Recent:
    """
    The last values of something, for a median.
    """

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=101)

    def add(self, value: float) -> None:
        """
        Add *value*.
        """
        self._values.append(value)

    @property
    def median(self) -> float | None:
        """
        The middle of the last hundred, `None` before the first.
        """
        values = list(self._values)
        return median(values) if values else None
