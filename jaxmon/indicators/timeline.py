"""
The wall-time breakdown of a program, and the ages of its activities.

Time is attributed to one activity at any moment: the innermost open one on the tracked
thread, else ``other``. So the activities add up to the wall time since the first
marker. The tracked thread is the first that runs a loop or, before that, the first that
marks an activity; if it stops, the next thread to mark something replaces it.
Activities of other threads are not included, except in the ages.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Protocol

from jaxmon import catalog
from jaxmon.exposition.families import Family, SpanIds, family_of
from jaxmon.indicators.endings import End, now
from jaxmon.indicators.marks import (
    COMPILE,
    DATA_WAIT,
    FEW,
    STEP,
    LoopCounts,
    LoopMark,
    Mark,
    Marked,
    MarkT,
    Stack,
    ThreadSentinel,
)
from jaxmon.indicators.recorder import OTHER, Labels
from jaxmon.threads import RLock


FINISHED, FAILED = -1.0, -2.0
"""Follows the time in the end of an activity that was left; no time is negative."""

_FEW = 16


class Open(Protocol):
    """An activity that was opened, with its end."""

    @property
    def end(self) -> End:
        """Its end, empty until then."""


class _Named:
    """
    The activities of one name, open ones and some that have ended, as they began; when
    the latest of the others finished, and how many did, without those that began within
    one.
    """

    def __init__(self) -> None:
        self.opened: list[tuple[float, Open]] = []
        self.finished: float | None = None
        self.count, self._counted = 0, -inf
        # Those that have ended are dropped when there are so many.
        self.most = _FEW

    def settle(self, began: float, activity: Open) -> None:
        """Note how *activity*, which *began* then and has ended, did so."""
        end = activity.end
        if len(end) > 1 and end[1] == FINISHED:
            if began >= self._counted:
                self.count, self._counted = self.count + 1, end[0]
            self.finished = max(end[0], self.finished or 0.0)

    def drop_ended(self) -> None:
        """Drop all that have ended."""
        open_ = []
        for began, activity in self.opened:
            if activity.end:
                self.settle(began, activity)
            else:
                open_.append((began, activity))
        self.opened = open_
        self.most = max(2 * len(open_), _FEW)


class ActivityAges:
    """Ages of activities by name, on whichever thread; the caller bounds the names."""

    def __init__(self, *, clock: Callable[[], float] = now) -> None:
        self._clock = clock
        self._named: dict[str, _Named] = {}
        self._lock = RLock()

    def begin(self, name: str, activity: Open) -> None:
        """Follow *activity*, which begins now. Thread-safe; half a microsecond."""
        with self._lock:
            named = self._named.get(name)
            if named is None:
                named = self._named[name] = _Named()
            elif len(named.opened) >= named.most:
                named.drop_ended()
            named.opened.append((self._clock(), activity))

    def count(self, name: str) -> int:
        """Return how many *name* finished without error; overlapping ones are one."""
        with self._lock:
            named = self._named.get(name)
            if named is None:
                return 0
            named.drop_ended()
            return named.count

    def collect(self) -> list[Family]:
        """Return the ages, in seconds."""
        ages, running = [], []
        with self._lock:
            for named in self._named.values():
                named.drop_ended()
            at = self._clock()
            for name, named in self._named.items():
                began = named.opened[0][0] if named.opened else at
                running.append((name, max(0.0, at - began)))
                if named.finished is not None:
                    ages.append((name, max(0.0, at - named.finished)))
        return [
            family_of(catalog.ACTIVITY_RUNNING_SECONDS, running),
            family_of(catalog.ACTIVITY_AGE_SECONDS, ages),
        ]


_AROUND = (STEP, DATA_WAIT)


class _Local(threading.local):
    stack: Stack | None = None
    life: ThreadSentinel | None = None


class Timeline:
    """
    Seconds by activity, at most *limit* names; `late` are those of compiles that were
    attributed to what they were part of, since the time was read before they had ended.
    """

    def __init__(self, limit: int, *, clock: Callable[[], float] = now) -> None:
        self.labels = Labels(limit)
        self._ages = ActivityAges(clock=clock)
        self._clock = clock
        self._local = _Local()
        self._owner: Stack | None = None
        self._seconds: dict[str, float] = {}
        self._since = 0.0
        # When the latest compiles began and ended.
        self._compiles: deque[tuple[End, End]] = deque(maxlen=FEW)
        self.late = 0.0
        self._lock = RLock()

    def begin(self) -> None:
        """Attribute the time of this thread from now on, unless that has begun."""
        stack = self._stack()
        with self._lock:
            if self._owner is None:
                self._follow(stack)

    def spent(self) -> dict[str, float]:
        """Return the seconds so far by activity, with those of the current one."""
        with self._lock:
            self._charge()
            return dict(self._seconds)

    def open(self, name: str, end: End) -> Mark:
        """Open an activity on this thread until *end*, which any thread may record."""
        name = self.labels.admit(name)
        mark = self._push(Mark(name, self._stack(), end))
        self._ages.begin(name, mark)
        return mark

    def open_loop(
        self, end: End, counts: LoopCounts, *, opening: float = 0.0
    ) -> LoopMark:
        """
        Open a loop's activity on this thread until *end*, waiting for data first, for
        *opening* seconds already. Its steps have the name of the activity around, else
        ``step``.
        """
        stack = self._stack()
        with self._lock:
            marks = [mark for mark in stack.marks if not mark.end]
        around = marks[-1].current if marks else STEP
        stack.loops = True
        mark = LoopMark(stack, end, around, counts, self._clock() - opening)
        self._push(mark)
        return mark

    def open_compile(self, end: End) -> Mark | None:
        """Open ``compile`` until *end* on the timeline's thread; never starts one."""
        stack = self._local.stack
        if stack is None or stack is not self._owner:
            return None
        self._compiles.append(([self._clock()], end))
        return self._push(Mark(COMPILE, stack, end))

    def count(self, name: str) -> int:
        """Return how many activities of *name* finished; see `ActivityAges.count`."""
        return self._ages.count(name)

    def follow(self, name: str, activity: Open) -> None:
        """Include *activity*, which begins now, in the ages of *name*."""
        self._ages.begin(self.labels.admit(name), activity)

    def open_pause(self, name: str, end: End, *, ago: float = 0.0) -> None:
        """
        Open *name* until *end*, and at most until the loop around goes on, if this
        thread is the timeline's and in none of the program's own activities. It began
        so many seconds *ago*; time that a scrape has already attributed stays there.
        """
        stack = self._local.stack
        if stack is None or stack is not self._owner:
            return
        with self._lock:
            marks = [mark for mark in stack.marks if not mark.end]
            if marks and marks[-1].name not in _AROUND:
                return
            name = self.labels.admit(name)
            self._seconds.setdefault(name, 0.0)
            self._charge(until=self._clock() - max(ago, 0.0))
            self._charge(name)
            self._push(Mark(name, stack, end)).is_pause = True

    def turn(
        self, mark: LoopMark, at: float, *, finished: bool, ids: SpanIds | None = None
    ) -> bool:
        """
        Begin a turn of *mark*, of this thread, *at* that time, when a step was
        *finished*, whose span has the *ids*, else data arrived. What paused its loop is
        over. Return whether it is innermost.
        """
        stack = mark.stack
        with self._lock:
            if (marks := stack.marks) and marks[-1] is mark:
                mark.turns.append(-at if finished else at)
                self._take_turns(mark, inf, ids)
                return True
            # An inner loop may have ended without a call.
            self._settle(stack)
            mark.turns.append(-at if finished else at)
            self._settle(stack, ids=ids)
            marks = stack.marks
            # As `_push` does: then it is innermost again.
            while marks and (end := marks[-1].end) and end[0] <= at:
                del marks[-1]
            return marks[-1:] == [mark]

    def settle(self, mark: LoopMark) -> None:
        """Account for the turns of *mark*. Thread-safe."""
        if mark.turns:
            with self._lock:
                self._take_turns(mark, inf)

    def compiled(self, seconds: float) -> None:
        """
        Attribute the last *seconds* of this thread to ``compile``, after the fact. Time
        that a scrape has already attributed stays there, and is in `late`: no counter
        decreases.
        """
        if self._local.stack is None or self._local.stack is not self._owner:
            return
        with self._lock:
            now = self._clock()
            began = now - seconds
            self.late += self._attributed_elsewhere(began)
            self._compiles.append(([began], [now]))
            self._charge(until=began)
            self._charge(COMPILE)

    def _attributed_elsewhere(self, began: float) -> float:
        """Return the seconds since *began* that were attributed, not to compiles."""
        left, at = self._since - began, began
        for start, end in sorted(self._compiles):
            until = min(end[0] if end else self._since, self._since)
            if until > at:
                left -= until - max(start[0], at)
                at = until
        return max(left, 0.0)

    def innermost(self) -> Marked | None:
        """Return what is marked now, `None` if nothing ever was; takes no lock."""
        owner = self._owner
        if owner is None or not owner.is_alive:
            return None
        # A copy: the thread goes on meanwhile.
        open_ = [mark.current for mark in owner.marks[:] if not mark.end]
        return Marked(owner.thread, open_[-1] if open_ else OTHER, owner.loops)

    def collect(self) -> list[Family]:
        """Return the seconds so far by activity, and the ages of activities."""
        times = family_of(catalog.TIME_SECONDS, self.spent().items())
        return [times, *self._ages.collect()]

    def _stack(self) -> Stack:
        local = self._local
        stack = local.stack
        if stack is None:
            life = local.life = ThreadSentinel()
            stack = local.stack = Stack(life)
        return stack

    def _push(self, mark: MarkT) -> MarkT:
        stack, name = mark.stack, mark.name
        with self._lock:
            self._charge()
            self._settle(stack)
            if self._replaces(stack):
                self._follow(stack)
            self._seconds.setdefault(name, 0.0)
            marks = stack.marks
            while marks and marks[-1].end:
                del marks[-1]
            if marks and type(around := marks[-1]) is LoopMark:
                around.note = None
            if len(marks) >= stack.most:  # tasks whose activities overlap
                stack.marks = marks = [of for of in marks if not of.end]
                stack.most = max(2 * len(marks), FEW)
            marks.append(mark)
        return mark

    def _settle(
        self, stack: Stack, until: float = inf, ids: SpanIds | None = None
    ) -> None:
        # Inner loops first: the last turns of outer ones came after them.
        for mark in stack.marks[::-1]:
            if type(mark) is LoopMark and mark.turns:
                self._take_turns(mark, until, ids)

    def _take_turns(
        self, mark: LoopMark, until: float, ids: SpanIds | None = None
    ) -> None:
        turns, counts, seconds = mark.turns, mark.counts, self._seconds
        owned, marks, totals = mark.stack is self._owner, mark.stack.marks, mark.totals
        spent = mark.spent
        if turns and (not marks or marks[-1] is not mark):
            self._resume(mark, abs(turns[0]))
        while turns:
            # There is no call in here: an interruption comes before or after.
            at = turns[0]
            if not -until <= at <= until:
                break
            del turns[0]
            if at > 0.0:
                if owned and at > self._since:
                    seconds[mark.name] += at - self._since
                    self._since = at
                mark.name, mark.arrived = mark.body, at
                if at > mark.began:
                    counts.waited += at - mark.began
                continue
            at = -at
            if owned and at > self._since:
                seconds[mark.name] += at - self._since
                self._since = at
            began, mark.name, mark.began = mark.began, DATA_WAIT, at
            counts.steps += 1
            counts.last_step = at
            if totals is not None:
                totals[mark.item] += mark.items
            spent += (at - began,)
        while spent and ids is not None:
            counts.seconds.observe(spent.pop(), ids)
        counts.seconds.observe_all(spent)

    def _resume(self, mark: LoopMark, at: float) -> None:
        """Note that the loop of *mark*, which is not the innermost, goes on at *at*."""
        for inner in reversed(mark.stack.marks):
            if inner is mark:
                break
            if inner.is_pause and not inner.end:
                inner.end.append(at)
        if mark.stack is self._owner:
            self._attribute(at)

    def _replaces(self, stack: Stack) -> bool:
        owner = self._owner
        if owner is None or not owner.is_alive:
            return True
        return stack.loops and not owner.loops

    def _follow(self, stack: Stack) -> None:
        if self._owner is None:
            self._since = self._clock()
            self._seconds = dict.fromkeys((STEP, DATA_WAIT, COMPILE, OTHER), 0.0)
        self._owner = stack

    def _charge(self, name: str | None = None, *, until: float | None = None) -> None:
        """Charge the time since the last charge to *name*, else to what is open."""
        owner = self._owner
        if owner is None:
            return
        if until is None:
            until = self._clock()
            # Until then: meanwhile, the loop goes on.
            self._settle(owner, until)
        else:
            self._settle(owner)
        self._attribute(until, name)

    def _attribute(self, until: float, name: str | None = None) -> None:
        owner = self._owner
        if owner is None:
            return
        marks, open_ = owner.marks, OTHER
        if marks:
            open_ = marks[-1].name
            if marks[-1].end:
                open_ = self._charge_ended(marks, until)
        if name is None:
            name = open_
        # What comes in between, on this thread, may have charged up to later already.
        # There is no call in here: an interruption comes before or after.
        if until > self._since:
            self._seconds[name] += until - self._since
            self._since = until

    def _charge_ended(self, marks: list[Mark], until: float) -> str:
        """Attribute time to *marks* that have ended; return those still open."""
        for mark in marks[::-1]:
            if not mark.end:
                return mark.name
            ended = min(mark.end[0], until)
            if ended > self._since:
                self._seconds[mark.name] += ended - self._since
                self._since = ended
        return OTHER
