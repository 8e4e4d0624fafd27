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


_ERROR = 0.15
"""What a figure may be off by, as a share of it; others are dropped."""

# Looks come in steps that grow with the time since the work began ...
_GROWTH = 0.06
# ... or, at work that comes before, with how long the function's own work takes.
_SHARE = 0.06
# Shares of what earlier samples took, in which there is nothing to see yet.
_QUIET_WORK = 0.5
_QUIET_QUEUE = 0.75
_SHORTEST = 2e-5
_LONGEST = 0.05
_LOOKS = 2000
"""Looks at one call, after which they become rare."""
_GIVEN_UP = 3600.0

_jitter = random.Random()  # noqa: S311 - spreads looks, hides nothing


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


class Pace:
    """
    What earlier samples of a function tell about the next.

    Attributes:
        work: estimates of its execution, in seconds, exact or not.
        gaps: seconds between the two looks that its end lay between.
        queue: how long its work waited for work before it, in seconds.
        dispatches: how long its calls took to return, in seconds.
        overlaps: whether its calls may return before the work is done, even where the
            device was idle.
    """

    def __init__(self, dispatches: Recent) -> None:
        self.dispatches = dispatches
        self.work: deque[float] = deque(maxlen=8)
        self.gaps: deque[float] = deque(maxlen=8)
        self.queue: deque[float] = deque(maxlen=4)
        self.overlaps = False


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
        elapsed = now - max(self._started, self._behind())
        quiet = _QUIET_WORK * min(self._pace.work, default=0.0) - elapsed
        step = elapsed * _GROWTH * _jitter.uniform(0.5, 1.5)
        return min(max(quiet, step, _SHORTEST), _LONGEST)

    def _queue_step(self, now: float) -> float:
        pace, elapsed = self._pace, now - self._ended
        quiet = _QUIET_QUEUE * min(pace.queue, default=0.0) - elapsed
        step = (min(pace.work, default=0.0) or elapsed) * _SHARE
        return min(max(quiet, step, _SHORTEST), _LONGEST)

    def _behind(self) -> float:
        """
        Return when the last of what came before was seen finished.
        """
        return max((work.finished or 0.0 for work in self._before), default=0.0)

    def _conclude(self) -> None:
        pace, behind = self._pace, self._behind()
        if behind > self._started:
            pace.queue.append(max(behind - self._ended, 0.0))
        finished, unfinished = self._work.finished or 0.0, self._work.unfinished
        if unfinished < self._ended:  # done when the call returned
            # Some devices work within the call; others were faster than the clock.
            if behind <= self._started and not pace.overlaps:
                self._tell(self._ended - self._started)
            return
        pace.overlaps |= behind <= self._ended
        early = max([self._started, *(work.unfinished for work in self._before)])
        # A call that took longer than usual may have been held up before the launch.
        usual = pace.dispatches.median or 0.0
        late = max(self._started, self._ended - usual, behind)
        least, most = unfinished - late, finished - early
        middle = (least + most) / 2
        # Where the end of the work before was missed, the next looks come closer.
        pace.work.append(max(middle, most / 4))
        pace.gaps.append(finished - unfinished)
        known = most - least <= 2 * _ERROR * middle
        if known and self._usual_is_told(middle, late - early):
            self._tell(middle)

    def _usual_is_told(self, seconds: float, start: float) -> bool:
        """
        Tell whether a run of usual length would have been told as well as this one of
        *seconds*, whose start was known to *start*. Of short programs, only those that
        something held up would be told otherwise.
        """
        pace = self._pace
        usual = median(pace.work)
        if usual >= seconds:
            return True
        # Looks come in steps that grow with the time, but cannot be as short as may be.
        end = max(pace.gaps[-1] * usual / seconds, min(pace.gaps))
        return start + end <= 2 * _ERROR * usual
