"""The ranks of a job side by side, over the same calls: windows of some seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median

from jaxmon.report.job.course import Course, Place
from jaxmon.report.job.records import Rank


WINDOW = 8.0
"""Seconds of a window in the latest two minutes; those before are longer."""

WINDOWS = 3
"""Of which there must be so many: one pause, however long, is in two at most."""

_MOST = 24
# What agents report is in short rows up to that age, or of one call each; then in rows
# that are as long as this part of their age.
_RECENT_SECONDS, _PART = 120.0, 1 / 5
# Calls in a window, as a multiple of those in the latest, if it is no longer.
_AS_LONG = 2.0
# Programs compile, load and warm up in the first calls.
_FIRST_CALLS = 10.0
# Of a rank that was read later; and steps that are dispatched before others have begun
# them, however long they take.
_BEHIND_SECONDS, _BEHIND_STEPS = 30.0, 40
# Ranks that do the same steps take the same time for them.
_APART = 0.25


@dataclass(frozen=True)
class Side:
    """One rank: its course, and where in it the windows begin, the latest first."""

    rank: Rank
    course: Course
    places: Sequence[Place]

    def spent(self, column: str, windows: range) -> float:
        """Return the sum of *column* in *windows*."""
        ends = (self.places[windows.start], self.places[windows.stop])
        after, before = self.course.sums(column, ends)
        return after - before

    def ratio(self, column: str, windows: range) -> float:
        """Return the sum of *column* in *windows* as a fraction of their time."""
        seconds = self.spent("seconds", windows)
        return self.spent(column, windows) / seconds if seconds > 0 else 0.0

    @cached_property
    def seconds(self) -> Sequence[float]:
        """The seconds of each window."""
        return _steps(self.course.sums("seconds", self.places))

    def ratios(self, column: str) -> list[float]:
        """Return *column* as a fraction of the time of each window."""
        spent = _steps(self.course.sums(column, self.places))
        return [
            one / all_ if all_ > 0 else 0.0
            for one, all_ in zip(spent, self.seconds, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """
    Ranks over the same calls.

    Attributes:
        sides: those that can be compared.
        edges: calls at which the windows begin and end, the latest first.
        ages: seconds since then.
        window: seconds of the latest windows, at least.
        each: calls that make a step.
    """

    sides: Sequence[Side]
    edges: Sequence[float]
    ages: Sequence[float]
    window: float
    each: float

    @property
    def recent(self) -> int:
        """The number of windows in which single pauses can be distinguished."""
        calls = [after - before for after, before in pairwise(self.edges)]
        longer = (at for at, one in enumerate(calls) if one > calls[0] * _AS_LONG)
        return next(longer, len(calls))

    def steps(self, windows: range) -> float:
        """Return the steps in *windows*."""
        return (self.edges[windows.start] - self.edges[windows.stop]) / self.each

    @property
    def windows(self) -> int:
        """The number of windows."""
        return len(self.edges) - 1


def compare(ranks: Sequence[Rank], window: float = WINDOW) -> Comparison | None:
    """
    Return *ranks* side by side, `None` if fewer than two can be compared, or for too
    short a time.

    Args:
        ranks: those that respond.
        window: seconds of the latest windows, at least.
    """
    known = [(one, one.course) for one in ranks if isinstance(one.course, Course)]
    if len(known) < 2:  # noqa: PLR2004 - none to compare with
        return None
    usual = sorted(known, key=lambda item: item[1].calls)[len(known) // 2][1]
    each = calls_each(ranks)
    ahead = usual.calls - _BEHIND_STEPS * each
    least = min(usual.calls_before(_BEHIND_SECONDS), ahead)
    known = [(one, course) for one, course in known if course.calls >= least]
    end = min(course.calls for _, course in known)
    edges, ages = _grid(usual, end, window, each)
    if len(edges) <= WINDOWS:
        return None
    sides = [
        Side(one, course, [course.place(edge) for edge in edges])
        for one, course in known
    ]
    latest = range(WINDOWS)
    times = [one.spent("seconds", latest) for one in sides]
    usually = median(times)
    sides = [
        one
        for one, seconds in zip(sides, times, strict=True)
        if abs(seconds - usually) <= _APART * usually
    ]
    # If most go their own ways, they are not in step.
    if len(sides) < 2 or 2 * len(sides) <= len(known):  # noqa: PLR2004 - see above
        return None
    return Comparison(sides, edges, ages, window, each)


def calls_each(ranks: Iterable[Rank]) -> float:
    """Return how many calls make a step: as many as there are for each of the most."""
    for rank in ranks:
        known = (one.calls or 0 for one in rank.functions)
        calls = [one for one in known if one > 0]
        if calls:
            return sum(calls) / max(calls)
    return 1.0


def _grid(
    usual: Course, end: float, window: float, each: float
) -> tuple[list[float], list[float]]:
    """
    Return the calls at which windows begin, back from *end*, and their ages. They have
    as many calls as are usual in that time now, in whole steps of *each*: one pause,
    however long, does not fill several of them.
    """
    first = min(_FIRST_CALLS, end / 2)
    edges, ages = [end], [usual.age(end)]
    while len(edges) <= _MOST:
        old = ages[-1] >= _RECENT_SECONDS
        seconds = max(window, ages[-1] * _PART) if old else window
        # When calls were shorter there were more of them.
        made = edges[-1] - usual.calls_before(ages[-1] + seconds)
        steps = max(round(max(seconds / usual.pace, made) / each), 1)
        edge = edges[-1] - steps * each
        if edge < first:
            break
        edges.append(edge)
        ages.append(usual.age(edge))
    return edges, ages


def _steps(sums: Sequence[float]) -> list[float]:
    return [after - before for after, before in pairwise(sums)]
