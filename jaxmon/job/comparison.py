"""
The ranks of a job side by side, in windows of the same calls, which all of them make,
whatever their clocks say and whenever they were read.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import median
from typing import TypeAlias

from jaxmon.facts.rank import COLUMNS, MOST_ROWS, Rank


_MOST_CHARACTERS = 512
# Seconds and calls together.
_MOST_IN_ALL = 1e18

# Rows of which a usual time of a call is known, and the shortest.
_LATELY, _LEAST_SECONDS = 5, 1e-6
_INDEX = {name: number for number, name in enumerate(COLUMNS)}
_CALLS = _INDEX["calls"]


CallPosition: TypeAlias = tuple[int, float]
"""Between two rows: how many are before it, and what part of the next one."""


class TimeByCall:
    """Cumulative sums of rows of *numbers*, the oldest first, up to so many *calls*."""

    __slots__ = ("_sums", "calls")

    def __init__(self, numbers: array[float]) -> None:
        width = len(COLUMNS)
        self._sums: list[array[float]] = [
            array("d", accumulate(numbers[column::width], initial=0.0))
            for column in range(width)
        ]
        self.calls = self._sums[_CALLS][-1]

    def position(self, calls: float) -> CallPosition:
        """Return where so many *calls* had been made, for `sums`."""
        made = self._sums[_CALLS]
        row = min(bisect_right(made, calls), len(made) - 1)
        before, after = made[row - 1], made[row]
        if after <= before:
            return row - 1, 1.0
        return row - 1, min(max((calls - before) / (after - before), 0.0), 1.0)

    def sums(self, column: str, positions: Sequence[CallPosition]) -> list[float]:
        """Return the sums of *column* up to each of *positions*."""
        cumulative = self._sums[_INDEX[column]]
        return [
            cumulative[row] + part * (cumulative[row + 1] - cumulative[row])
            for row, part in positions
        ]

    def calls_before(self, seconds: float) -> float:
        """Return how many calls had been made so many *seconds* before the end."""
        times, made = self._sums[_INDEX["seconds"]], self._sums[_CALLS]
        wanted = times[-1] - seconds
        if wanted <= 0:
            return 0.0
        row = min(bisect_right(times, wanted), len(times) - 1)
        before, after = times[row - 1], times[row]
        part = (wanted - before) / (after - before) if after > before else 1.0
        return made[row - 1] + part * (made[row] - made[row - 1])

    def age(self, calls: float) -> float:
        """Return how many seconds before the end so many *calls* had been made."""
        [then] = self.sums("seconds", [self.position(calls)])
        return self.seconds - then

    @property
    def seconds(self) -> float:
        """The seconds in all."""
        return self._sums[_INDEX["seconds"]][-1]

    @property
    def seconds_of_a_call(self) -> float:
        """The seconds of a usual call lately, not less than a microsecond."""
        latest = slice(-_LATELY - 1, None)
        made = pairwise(self._sums[_CALLS][latest])
        times = pairwise(self._sums[_INDEX["seconds"]][latest])
        found = [
            (b - a) / (after - before)
            for (before, after), (a, b) in zip(made, times, strict=True)
            if after > before
        ]
        return max(median(found), _LEAST_SECONDS) if found else math.inf


def time_by_call(document: object) -> TimeByCall | None:
    """Return `Rank.course` as sums; `None` if there is none."""
    if not isinstance(document, (list, tuple)) or not 0 < len(document) <= MOST_ROWS:
        return None
    if not all(map(_is_row, document)):
        return None
    try:
        # All rows at once: there are thousands of documents.
        numbers = array("d", map(float, " ".join(document).split(" ")))
    except ValueError:
        return None
    # Nothing decreases; NaN is in no range.
    if min(numbers) < 0 or not sum(numbers) <= _MOST_IN_ALL:
        return None
    found = TimeByCall(numbers)
    return found if found.calls > 0 and found.seconds > 0 else None


def _is_row(text: object) -> bool:
    """Return whether *text* has as many words as a row has numbers."""
    if not isinstance(text, str) or len(text) > _MOST_CHARACTERS:
        return False
    return text.count(" ") == len(COLUMNS) - 1


WINDOW = 8.0
"""Seconds of a window in the latest two minutes; those before are longer."""

WINDOWS = 3
"""Of which there must be so many: one pause, however long, is in two at most."""

_MOST_WINDOWS = 24
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
class ComparedRank:
    """One rank: its time by call, and where the windows begin, the latest first."""

    rank: Rank
    course: TimeByCall
    positions: Sequence[CallPosition]

    def spent(self, column: str, windows: range) -> float:
        """Return the sum of *column* in *windows*."""
        ends = (self.positions[windows.start], self.positions[windows.stop])
        after, before = self.course.sums(column, ends)
        return after - before

    def ratio(self, column: str, windows: range) -> float:
        """Return the sum of *column* in *windows* as a fraction of their time."""
        seconds = self.spent("seconds", windows)
        return self.spent(column, windows) / seconds if seconds > 0 else 0.0

    @cached_property
    def seconds(self) -> Sequence[float]:
        """The seconds of each window."""
        return _steps(self.course.sums("seconds", self.positions))

    def ratios(self, column: str) -> list[float]:
        """Return *column* as a fraction of the time of each window."""
        spent = _steps(self.course.sums(column, self.positions))
        return [
            part / all_ if all_ > 0 else 0.0
            for part, all_ in zip(spent, self.seconds, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class RankComparison:
    """
    Ranks over the same calls: windows lie between *edges*, the latest first, which are
    *ages* old; the latest have *window* seconds, a step *step_calls*.
    """

    sides: Sequence[ComparedRank]
    edges: Sequence[float]
    ages: Sequence[float]
    window: float
    step_calls: float

    @property
    def recent(self) -> int:
        """The number of windows in which single pauses can be distinguished."""
        calls = [after - before for after, before in pairwise(self.edges)]
        longer = (at for at, number in enumerate(calls) if number > calls[0] * _AS_LONG)
        return next(longer, len(calls))

    def steps(self, windows: range) -> float:
        """Return the steps in *windows*."""
        return (self.edges[windows.start] - self.edges[windows.stop]) / self.step_calls

    @property
    def windows(self) -> int:
        """The number of windows."""
        return len(self.edges) - 1


def compare(ranks: Sequence[Rank], window: float = WINDOW) -> RankComparison | None:
    """
    Return *ranks* that respond side by side, in windows of so many seconds at least;
    `None` if fewer than two can be compared, or for too short a time.
    """
    courses = [
        (rank, course)
        for rank in ranks
        if (course := time_by_call(rank.course)) is not None
    ]
    if len(courses) < 2:  # noqa: PLR2004 - none to compare with
        return None
    usual = sorted(courses, key=lambda item: item[1].calls)[len(courses) // 2][1]
    step_calls = calls_each(ranks)
    ahead = usual.calls - _BEHIND_STEPS * step_calls
    least = min(usual.calls_before(_BEHIND_SECONDS), ahead)
    courses = [(rank, course) for rank, course in courses if course.calls >= least]
    end = min(course.calls for _, course in courses)
    edges, ages = _grid(usual, end, window, step_calls)
    if len(edges) <= WINDOWS:
        return None
    sides = [
        ComparedRank(rank, course, [course.position(edge) for edge in edges])
        for rank, course in courses
    ]
    latest = range(WINDOWS)
    times = [side.spent("seconds", latest) for side in sides]
    usually = median(times)
    sides = [
        side
        for side, seconds in zip(sides, times, strict=True)
        if abs(seconds - usually) <= _APART * usually
    ]
    # If most go their own ways, they are not in step.
    if len(sides) < 2 or 2 * len(sides) <= len(courses):  # noqa: PLR2004 - see above
        return None
    return RankComparison(sides, edges, ages, window, step_calls)


def calls_each(ranks: Iterable[Rank]) -> float:
    """Return how many calls make a step: as many as there are for each of the most."""
    for rank in ranks:
        counts = (function.calls or 0 for function in rank.functions)
        calls = [count for count in counts if count > 0]
        if calls:
            return sum(calls) / max(calls)
    return 1.0


def _grid(
    usual: TimeByCall, end: float, window: float, step_calls: float
) -> tuple[list[float], list[float]]:
    """
    Return the calls at which windows begin, back from *end*, and their ages: as many
    calls, in whole steps, as are usual now, so that no single pause fills several.
    """
    first = min(_FIRST_CALLS, end / 2)
    edges, ages = [end], [usual.age(end)]
    while len(edges) <= _MOST_WINDOWS:
        old = ages[-1] >= _RECENT_SECONDS
        seconds = max(window, ages[-1] * _PART) if old else window
        # When calls were shorter there were more of them.
        made = edges[-1] - usual.calls_before(ages[-1] + seconds)
        steps = max(round(max(seconds / usual.seconds_of_a_call, made) / step_calls), 1)
        edge = edges[-1] - steps * step_calls
        if edge < first:
            break
        edges.append(edge)
        ages.append(usual.age(edge))
    return edges, ages


def _steps(sums: Sequence[float]) -> list[float]:
    return [after - before for after, before in pairwise(sums)]
