"""
By how much ranks differ from the median one, in which windows that is no chance, and
for how long their devices work and nothing lets their hosts run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from statistics import fmean, median_high, median_low, variance

from jaxmon.job.comparison import WINDOWS, ComparedRank, RankComparison


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
    """Yield those of *windows* in a row that have *least* at least."""
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


class DeviceIdleness:
    """How much of the time devices work, or wait for others, by *busy*."""

    def __init__(
        self,
        sides: Sequence[ComparedRank],
        busy: Callable[[ComparedRank, range], float | None],
    ) -> None:
        self._sides = sides
        self._busy = busy
        self._usual: dict[range, float | None] = {}

    def idle(self, number: int, windows: range) -> float | None:
        """Return how much less the rank *number* did than others, if known."""
        if windows not in self._usual:
            found = [self._busy(side, windows) for side in self._sides]
            fractions = [value for value in found if value is not None]
            most = 2 * len(fractions) > len(found)
            self._usual[windows] = median_high(fractions) if most else None
        usual, fraction = self._usual[windows], self._busy(self._sides[number], windows)
        return None if usual is None or fraction is None else usual - fraction


class Stoppages:
    """For how much of the time nothing lets the processes run."""

    def __init__(self, sides: Sequence[ComparedRank]) -> None:
        self._sides = sides
        self._usual: dict[range, float] = {}

    def longer(self, side: ComparedRank, windows: range) -> float:
        """Return how much longer *side* was held than the median, as all may be."""
        if windows not in self._usual:
            found = [side.ratio("held", windows) for side in self._sides]
            self._usual[windows] = median_low(found)
        return side.ratio("held", windows) - self._usual[windows]
