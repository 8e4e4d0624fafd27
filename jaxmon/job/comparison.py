"""
The ranks of a job side by side, in windows of the same calls, which all of them make,
whatever their clocks say; and in which windows one differs by more than chance.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, compress, pairwise
from statistics import fmean, median, median_high, median_low, variance
from typing import NamedTuple, TypeAlias

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
        return _position(self._sums[_CALLS], calls)

    def sums(self, column: str, positions: Sequence[CallPosition]) -> list[float]:
        """Return the sums of *column* up to each of *positions*."""
        cumulative = self._sums[_INDEX[column]]
        return [
            cumulative[row] + part * (cumulative[row + 1] - cumulative[row])
            for row, part in positions
        ]

    def calls_before(self, seconds: float) -> float:
        """Return how many calls had been made so many *seconds* before the end."""
        wanted = self.seconds - seconds
        if wanted <= 0:
            return 0.0
        then = _position(self._sums[_INDEX["seconds"]], wanted)
        return self.sums("calls", [then])[0]

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


def _position(sums: Sequence[float], wanted: float) -> CallPosition:
    row = min(bisect_right(sums, wanted), len(sums) - 1)
    before, after = sums[row - 1], sums[row]
    if after <= before:
        return row - 1, 1.0
    return row - 1, min(max((wanted - before) / (after - before), 0.0), 1.0)


def time_by_call(document: object) -> TimeByCall | None:
    """Return `Rank.course` as sums; `None` if there is none."""
    if not isinstance(document, (list, tuple)) or not 0 < len(document) <= MOST_ROWS:
        return None
    for row in document:
        if not isinstance(row, str) or len(row) > _MOST_CHARACTERS:
            return None
        if row.count(" ") != len(COLUMNS) - 1:
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
    """
    One rank: its time by call, where the windows begin, the latest first, and where the
    *first* calls are over.
    """

    rank: Rank
    course: TimeByCall
    positions: Sequence[CallPosition]
    first: CallPosition

    def spent(self, column: str, windows: range) -> float:
        """Return the sum of *column* in *windows*."""
        ends = (self.positions[windows.start], self.positions[windows.stop])
        after, before = self.course.sums(column, ends)
        return after - before

    def spent_before(self, column: str) -> float:
        """Return the sum of *column* before all windows, without the first calls."""
        ends = (self.positions[-1], self.first)
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


class RankComparison(NamedTuple):
    """
    Ranks over the same calls: windows lie between *edges*, the latest first, which are
    *ages* old; the latest have *window* seconds, a step *step_calls*. What is known
    begins at the call *first*.
    """

    sides: Sequence[ComparedRank]
    edges: Sequence[float]
    ages: Sequence[float]
    window: float
    step_calls: float
    first: float

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
    def steps_before(self) -> float:
        """The steps before all windows, without the first calls, 0 if they are few."""
        steps = (self.edges[-1] - self.first) / self.step_calls
        return steps if steps >= _STEPS else 0.0

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
    step_calls = _calls_each(ranks)
    ahead = usual.calls - _BEHIND_STEPS * step_calls
    least = min(usual.calls_before(_BEHIND_SECONDS), ahead)
    courses = [(rank, course) for rank, course in courses if course.calls >= least]
    end = min(course.calls for _, course in courses)
    first = min(_FIRST_CALLS, end / 2)
    edges, ages = _grid(usual, first, end, window, step_calls)
    if len(edges) <= WINDOWS:
        return None
    sides = [
        ComparedRank(
            rank,
            course,
            [course.position(edge) for edge in edges],
            course.position(first),
        )
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
    return RankComparison(sides, edges, ages, window, step_calls, first)


def _calls_each(ranks: Iterable[Rank]) -> float:
    for rank in ranks:
        counts = (function.calls or 0 for function in rank.functions)
        calls = [count for count in counts if count > 0]
        if calls:
            return sum(calls) / max(calls)
    return 1.0


def _grid(
    usual: TimeByCall, first: float, end: float, window: float, step_calls: float
) -> tuple[list[float], list[float]]:
    """
    Return the calls at which windows begin, back from *end* to *first*, and their ages:
    as many calls, in whole steps, as are usual now, so that no single pause fills
    several.
    """
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


# In so much of a window, or more, enough calls are of functions that were sampled.
_IS_KNOWN = 0.5
# For how many windows it must last, and steps: more than what passes by itself, and
# than a rank has bad luck.
_LASTS, _STEPS = 3.5, 7
# Looks are samples: so many standard deviations, with thousands of ranks.
_DEVIATIONS = 5.0
# Fractions of the time, in which execution times are known, and in which calls were
# seen in flight or finished.
_MOSTLY, _OFTEN = 0.5, 0.1
# Few steps differ by chance, too: standard errors of the mean of three and more windows
# that one in ten thousand exceeds, by Student's distribution.
_MANY_STEPS = 5
_STUDENT = (70.0, 22.2, 13.0, 9.7, 8.0, 7.1, 6.4, 6.0, 5.7, 5.5)


class TimeFractions:
    """
    What fractions of time ranks spend on *columns*. Others wait for a slow rank for
    *least* of it, in a window for half of that. *sampled* ones may be unknown: such a
    rank is taken for a usual one, and all are if most are unknown.
    """

    def __init__(
        self,
        found: RankComparison,
        columns: Sequence[str],
        least: float,
        *,
        sampled: bool = False,
    ) -> None:
        self._least = least
        self.columns = columns
        self.sides = found.sides
        self._found = found
        self._least_seconds = found.window * _LASTS
        rows = [
            [
                sum(fractions)
                for fractions in zip(*map(side.ratios, columns), strict=True)
            ]
            for side in found.sides
        ]
        if sampled:
            rows = _completed(rows, found.sides)
        self.rows = rows
        # Of two, compare with the one that waits.
        self.high = [median_high(fractions) for fractions in zip(*rows, strict=True)]
        self.low = [median_low(fractions) for fractions in zip(*rows, strict=True)]

    def of(self, number: int, windows: range) -> float:
        """Return the fraction of the rank *number* in *windows* together."""
        side = self.sides[number]
        return sum(side.ratio(column, windows) for column in self.columns)

    def usual(self, number: int, windows: range, *, high: bool) -> float:
        """Return that of the median rank in *windows*, as long as those of *number*."""
        seconds = self.sides[number].seconds
        medians = self.high if high else self.low
        whole = sum(seconds[window] for window in windows)
        spent = sum(medians[window] * seconds[window] for window in windows)
        return spent / whole if whole > 0 else 0.0

    def slow(self, number: int, lags: Sequence[float]) -> Iterator[range]:
        """
        Yield the windows in a row in which the rank *number* is slow by *lags*, its
        differences from others, the latest first, if they are enough.
        """
        seconds = self.sides[number].seconds
        for some in _rows(lags, range(len(lags)), self._least / 2):
            # At the ends it was for a part only, and between two pauses by chance.
            half = fmean([lags[window] for window in some]) / 2
            for windows in _rows(_mended(lags), some, half):
                distinct = range(windows.start, min(windows.stop, self._found.recent))
                if len(distinct) < WINDOWS or self._found.steps(distinct) < _STEPS:
                    continue
                if sum([seconds[window] for window in distinct]) >= self._least_seconds:
                    yield windows

    def least(self, number: int, lags: Sequence[float], windows: range) -> float:
        """Return from which mean of *lags* that rank is slow in enough *windows*."""
        looks = max(self.sides[number].spent("looks", windows), 1.0)
        usual = self.usual(number, windows, high=True)
        chance = max(usual * (1.0 - usual), 0.0) / looks
        deviations = _DEVIATIONS * math.sqrt(chance)
        many, found = len(windows), [lags[window] for window in windows]
        if self._found.steps(windows) >= many * _MANY_STEPS:
            return max(self._least, deviations)
        errors = _STUDENT[min(many - WINDOWS, len(_STUDENT) - 1)]
        more = max(variance(found) / many - chance, 0.0)
        return max(self._least, deviations, errors * math.sqrt(more))


def _completed(
    rows: Sequence[Sequence[float]], sides: Sequence[ComparedRank]
) -> list[list[float]]:
    """Return *rows* with what is usual where a rank was not sampled, if most were."""
    are_known = [
        [ratio >= _IS_KNOWN for ratio in side.ratios("known")] for side in sides
    ]
    windows = []
    for some, are_sampled in zip(
        zip(*rows, strict=True), zip(*are_known, strict=True), strict=True
    ):
        sampled = list(compress(some, are_sampled))
        if 2 * len(sampled) > len(some):
            usual = median_high(sampled)
            found = zip(some, are_sampled, strict=True)
            windows.append(
                [fraction if is_known else usual for fraction, is_known in found]
            )
        else:
            windows.append([0.0] * len(some))
    return [list(window) for window in zip(*windows, strict=True)]


def _rows(lags: Sequence[float], windows: range, least: float) -> Iterator[range]:
    start = windows.start
    for window in (*windows, windows.stop):
        if window < windows.stop and lags[window] >= least:
            continue
        if window > start:
            yield range(start, window)
        start = window + 1


def _mended(lags: Sequence[float]) -> list[float]:
    """Return *lags* without dips of a single window, which are chance as well."""
    sides = zip(lags, lags[1:], lags[2:], strict=False)
    inner = [max(lag, min(after, before)) for after, lag, before in sides]
    return [*lags[:1], *inner, *lags[1:][-1:]]


def busy_for_certain(side: ComparedRank, windows: range) -> float | None:
    """Return for which part a device surely had work of all, if that is known."""
    ahead, behind = side.spent("ahead", windows), side.spent("behind", windows)
    if ahead + behind <= side.spent("seconds", windows) * _OFTEN:
        return None
    return ahead / (ahead + behind)


def busy_by_estimate(side: ComparedRank, windows: range) -> float | None:
    """Return the same of whatever it runs, by sampled execution times."""
    seconds = side.spent("known", windows)
    if seconds <= side.spent("seconds", windows) * _MOSTLY:
        return None
    works = side.spent("together", windows) + side.spent("alone", windows)
    # Estimates of a busy host add up to more than the time.
    return min(works / seconds, 1.0)


Excess: TypeAlias = Callable[[ComparedRank, range], float | None]
"""How much more, or less, than the median a rank has in some windows, if known."""


def idleness(
    sides: Sequence[ComparedRank], busy: Callable[[ComparedRank, range], float | None]
) -> Excess:
    """Return how much less of the time than others a device works, by *busy*."""

    @cache
    def usual(windows: range) -> float | None:
        found = [busy(side, windows) for side in sides]
        fractions = [value for value in found if value is not None]
        return median_high(fractions) if 2 * len(fractions) > len(found) else None

    def less(side: ComparedRank, windows: range) -> float | None:
        most, fraction = usual(windows), busy(side, windows)
        return None if most is None or fraction is None else most - fraction

    return less


def stoppages(sides: Sequence[ComparedRank]) -> Callable[[ComparedRank, range], float]:
    """Return how much longer than the median nothing lets a process run."""

    @cache
    def usual(windows: range) -> float:
        return median_low([side.ratio("held", windows) for side in sides])

    return lambda side, windows: side.ratio("held", windows) - usual(windows)
