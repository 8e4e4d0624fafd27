"""
The time that a device worked on a sampled call.

A device starts a call's work when it has been dispatched, its inputs are ready and the
previous work is done, whichever comes last. Each of these moments is only known to lie
between two polls. On a CPU our own work takes time from the program. If the uncertainty
is too large, no time is reported, however long the work took.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from types import FrameType, FunctionType
from typing import NamedTuple, TypeAlias

from jaxmon import catalog
from jaxmon.agent.context import OnSample
from jaxmon.agent.counted import CountedFunction, arm, call_count, jitted_of
from jaxmon.agent.functions import Function
from jaxmon.agent.inspection import AnyCall
from jaxmon.agent.sampling.window import DeviceWork
from jaxmon.clocks import perf_counter, thread_time
from jaxmon.exposition.families import Histogram


_ERROR = 0.15
"""
Maximum error of a time, as a fraction of it, or of the function's usual time if that
is longer; others are dropped.
"""

_DELAY = 0.1
"""Maximum delay of the program by our own work, as a fraction of the usual time."""

_MOST = 0.5
"""Fraction of recent samples that must be known before any is reported."""

_FIRST = 4
"""Samples of a program on a CPU before its time is exported: one is not typical."""

# Polling intervals grow with the time since the work began or, for previous work, with
# the function's own time. The larger ones are for programs that run on the polling
# processor.
_GROWTH = 0.06
_GROWTH_ON_HOST = 0.1
# Share of the usual time before which polling is pointless.
_QUIET = 0.75
_SHORTEST = 2e-5
_LONGEST = 0.05
_LOOKS = 2000
"""Number of polls of one call after which they become rare."""
_GIVEN_UP = 3600.0

_jitter = random.Random()  # noqa: S311 - spreads looks, hides nothing


def median(values: Sequence[float]) -> float:
    """Return the middle of *values*; importing `statistics` for it takes 2 ms."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return (ordered[half] + ordered[~half]) / 2


class RollingMedian:
    """The latest values, for a median."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=101)

    def add(self, value: float) -> None:
        """Add *value*."""
        self._values.append(value)

    @property
    def latest(self) -> list[float]:
        """The last hundred values."""
        return list(self._values)

    @property
    def median(self) -> float | None:
        """The median of the last hundred values, `None` before the first."""
        values = list(self._values)
        return median(values) if values else None


class SteadyPace:
    """
    Seconds per unit of work, in which the slowest sample counts like the second
    slowest: times all calls, one that was delayed would count for many.
    """

    def __init__(self) -> None:
        self._seconds = self._work = 0.0
        self._slowest: list[tuple[float, float]] = []

    def add(self, seconds: float, work: float = 1.0) -> None:
        """Add a sample that took *seconds* for *work*, more than none."""
        self._seconds += seconds
        self._work += work
        self._slowest = sorted([*self._slowest, (seconds / work, work)])[-2:]

    @property
    def pace(self) -> float | None:
        """Seconds per unit; `None` of fewer than two samples."""
        if len(self._slowest) < 2:  # noqa: PLR2004 - one alone may be the delayed one
            return None
        (usual, _), (slowest, work) = self._slowest
        return (self._seconds - (slowest - usual) * work) / self._work


class SampleEstimates:
    """
    Estimates from earlier samples of a function, for the next ones; times in seconds.

    Attributes:
        work: estimates of its execution, exact or not, and *least* its minimum.
        gaps: between the two polls around its end.
        delays: by which we may have delayed it.
        determined: whether samples were known well enough to be reported.
        looks: processor seconds per poll.
        queue: how long its work waited for previous work.
        dispatches: how long its calls took to return.
        overlaps: whether its calls may return before the work is done, even if the
            device was idle.
    """

    def __init__(self, dispatches: RollingMedian) -> None:
        self.dispatches = dispatches
        self.work: deque[float] = deque(maxlen=8)
        self.least: deque[float] = deque(maxlen=16)
        self.gaps: deque[float] = deque(maxlen=8)
        self.delays: deque[float] = deque(maxlen=8)
        self.determined: deque[bool] = deque(maxlen=16)
        self.looks: deque[float] = deque(maxlen=8)
        self.queue: deque[float] = deque(maxlen=8)
        self.overlaps = False


class CallTiming(NamedTuple):
    """
    When a call began and returned; what we took since, on the program's processor.
    """

    started: float
    ended: float
    taken: float | None = None


class ExecutionTimer:
    """Polls the *work* of a call, and what ran *before*; *record* gets its time."""

    __slots__ = (
        *("_before", "_ended", "_looks", "_own_looks", "_pace", "_record", "_since"),
        *("_started", "_taken", "_waiting", "_work"),
    )

    def __init__(
        self,
        called: CallTiming,
        before: Sequence[DeviceWork],
        work: DeviceWork,
        pace: SampleEstimates,
        record: Callable[[float], None],
    ) -> None:
        self._started, self._ended, self._taken = called
        self._before = before
        self._work = work
        self._pace = pace
        self._record = record
        self._waiting = [*before, work]
        self._looks = 0
        # Polls while only this work was left, and this thread's time before these.
        self._own_looks = 0
        self._since = 0.0

    def look(self) -> float | None:
        """Poll; return the seconds until the next poll."""
        waiting = self._waiting
        while waiting and waiting[0].look():
            if waiting.pop(0).lost:
                self._pace.determined.append(False)
                return None
        if len(waiting) <= 1:
            self._own_looks += 1
            self._since = self._since or thread_time()
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
        quiet = _QUIET * min(self._pace.work, default=0.0) - elapsed
        step = elapsed * self._growth() * _jitter.uniform(0.5, 1.5)
        return min(max(quiet, step, _SHORTEST), _LONGEST)

    def _growth(self) -> float:
        """Return how fast the interval grows: faster if polls are dear."""
        pace = self._pace
        if self._taken is None or not pace.looks:
            return _GROWTH
        dear = median(pace.looks) / median(pace.work)
        return min(max(_GROWTH, math.sqrt(dear)), _GROWTH_ON_HOST)

    def _queue_step(self, now: float) -> float:
        pace, elapsed = self._pace, now - self._ended
        # Where results are read now and then, queues are long and short.
        steady = len(pace.queue) == pace.queue.maxlen
        quiet = _QUIET * min(pace.queue) - elapsed if steady else 0.0
        step = (min(pace.work, default=0.0) or elapsed) * self._growth()
        return min(max(quiet, step, _SHORTEST), _LONGEST)

    def _behind(self) -> float:
        return max((work.finished or 0.0 for work in self._before), default=0.0)

    def _conclude(self) -> None:
        pace, behind = self._pace, self._behind()
        if behind > self._started:
            pace.queue.append(max(behind - self._ended, 0.0))
        finished, unfinished = self._work.finished or 0.0, self._work.unfinished
        if unfinished < self._ended:  # done when the call returned
            # Some devices work within the call; others were faster than the clock.
            within = behind <= self._started and not pace.overlaps
            self._say(self._ended - self._started, determined=within)
            return
        pace.overlaps |= behind <= self._ended
        early = max([self._started, *(work.unfinished for work in self._before)])
        # A call that took longer than usual may have been delayed before the launch.
        usual = pace.dispatches.median or 0.0
        late = max(self._started, self._ended - usual, behind)
        least, most = unfinished - late, finished - early
        middle = (least + most) / 2
        # If polls came late, the middle is too long.
        usual = median(pace.least or [least])
        pace.least.append(least)
        # If the end of the previous work was missed, the next polls come closer.
        pace.work.append(max(middle, most / 4))
        pace.gaps.append(finished - unfinished)
        pace.delays.append(self._delay())
        self._say(middle, determined=self._usual_is_known(usual, middle, late - early))

    def _delay(self) -> float:
        if self._taken is None:
            return 0.0
        looked = thread_time() - self._since
        if self._own_looks > 1:
            self._pace.looks.append(looked / (self._own_looks - 1))
        return looked + (0.0 if self._before else self._taken)

    def _usual_is_known(self, usual: float, seconds: float, start: float) -> bool:
        """
        Return whether a run of *usual* length would be known well enough, polled like
        one of *seconds* whose start was known to *start*: that must not depend on its
        length.
        """
        pace = self._pace
        end, delay = pace.gaps[-1], pace.delays[-1]
        if seconds > usual:
            # Polling intervals grow with the time, but have a minimum.
            end = max(end * usual / seconds, min(pace.gaps))
            delay = max(delay * usual / seconds, min(pace.delays))
        return start + end <= 2 * _ERROR * usual and delay <= _DELAY * usual

    def _say(self, seconds: float, *, determined: bool) -> None:
        """Report the *seconds* if *determined*, and if those of most samples are."""
        recent = self._pace.determined
        recent.append(determined)
        # On a CPU a run delayed by another process may look like a long one.
        enough = self._taken is None or len(recent) >= _FIRST
        if determined and enough and sum(recent) >= _MOST * len(recent):
            self._record(seconds)


# Maximum number of objects of one label searched for one that is being called.
_OBJECTS = 64


class ExecutionFigures:
    """
    The samples of one function.

    Attributes:
        hits: their number at the last timer run.
        sampled: `time.perf_counter` when it last had its turn.
        dispatch: how long sampled calls took to return; the latest in *dispatches*.
        execution: how long the device worked; the latest in *executions*, a mean in
            *steady*.
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
        """Return the object called most since the last time; a pmap is none of them."""
        before, self._taken = self._taken, {}
        best, most = None, 0
        for number, counted in islice(self._objects.newest_first(), _OBJECTS):
            now = self._taken[number] = call_count(counted)
            fresh = now - before.get(number, 0)
            if fresh > most and type(jitted_of(counted)) is not FunctionType:
                best, most = counted, fresh
        return best


Begin: TypeAlias = Callable[["Sampler", CountedFunction, AnyCall, FrameType], None]


class Sampler:
    """Skips *passed* calls of one object and samples the next, or one of a few more."""

    __slots__ = (
        *("_begin", "passed", "attempts", "figures", "followed", "function", "shown"),
        "timed",
    )

    def __init__(
        self, begin: Begin, function: Function, figures: ExecutionFigures, passed: int
    ) -> None:
        self._begin = begin
        self.passed = passed
        self.function = function
        self.figures = figures
        self.shown = self.timed = False
        self.attempts = 0
        self.followed: tuple[OnSample, ...] = ()

    def begin(
        self, counted: CountedFunction, jitted: AnyCall, frame: FrameType, /
    ) -> None:
        """Start the call, or wait for the next."""
        if self.passed:
            self.passed -= 1
            arm(counted, self)
            return
        self._begin(self, counted, jitted, frame)
