"""The ranks of a job side by side, over the same calls: windows of some seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median

from jaxmon.report.job.course import Course
from jaxmon.report.job.records import Rank


WINDOW = 15.0
"""Seconds of a window in the latest two minutes; those before are longer."""

_LEAST, _SHORT, _MOST = 4, 8, 16
_LEAST_CALLS = 3.0
# Programs compile, load and warm up in the first calls.
_FIRST_CALLS = 10.0
# Of a rank that was read later, or has been busy for a moment.
_BEHIND_SECONDS = 30.0
# Ranks that do the same steps take the same time for them.
_APART = 0.25


@dataclass(frozen=True)
class Side:
    """One rank: its course, and where in it the windows begin, the latest first."""

    rank: Rank
    course: Course
    places: Sequence[float]

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
    """

    sides: Sequence[Side]
    edges: Sequence[float]
    ages: Sequence[float]

    @property
    def windows(self) -> int:
        """The number of windows."""
        return len(self.edges) - 1


def compare(ranks: Iterable[Rank], window: float = WINDOW) -> Comparison | None:
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
    least = usual.calls_before(_BEHIND_SECONDS)
    known = [(one, course) for one, course in known if course.calls >= least]
    end = min(course.calls for _, course in known)
    edges, ages = _grid(usual, end, window)
    if len(edges) <= _LEAST:
        return None
    sides = [
        Side(one, course, [course.place(edge) for edge in edges])
        for one, course in known
    ]
    latest = range(_LEAST)
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
    return Comparison(sides, edges, ages)


def _grid(usual: Course, end: float, window: float) -> tuple[list[float], list[float]]:
    """
    Return the calls at which windows begin, back from *end*, and their ages. They are
    windows of calls: one pause, however long, does not fill several of them.
    """
    calls = max(window / usual.pace, _LEAST_CALLS)
    edges, length = [end], calls
    while len(edges) <= _MOST:
        edge = edges[-1] - length
        if edge < min(_FIRST_CALLS, end / 2):
            break
        edges.append(edge)
        if len(edges) > _SHORT and len(edges) % 2:
            length *= 2
    times = usual.sums("seconds", [usual.place(edge) for edge in edges])
    return edges, [usual.seconds - one for one in times]


def _steps(sums: Sequence[float]) -> list[float]:
    return [after - before for after, before in pairwise(sums)]
