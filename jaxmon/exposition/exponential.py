"""
Exponential buckets, counted beside the explicit ones if OTLP is to have them.

As in OpenTelemetry: bucket *index* at *scale* holds what is above ``base ** index`` and
at most ``base ** (index + 1)``, with ``base = 2 ** (2 ** -scale)``. At most 160 buckets
are in use; if the values spread further, neighbours are merged, which is exact.
"""

from __future__ import annotations

from math import floor, frexp, ldexp, log

from jaxmon.tuples import NamedTuple


MAX_SIZE, MAX_SCALE = 160, 20

_FACTOR = ldexp(1 / log(2), MAX_SCALE)
# The smallest number that is not denormal is 2 ** -1022; all below share a bucket.
_SMALLEST, _SMALLEST_INDEX = 2.0**-1022, (-1022 << MAX_SCALE) - 1


class Exponential(NamedTuple):
    """
    What was counted until one moment.

    Attributes:
        scale: of the indexes.
        zero: observations of 0.
        counts: number of observations by index.
        sum: of all observations.
    """

    scale: int
    zero: int
    counts: dict[int, int]
    sum: float

    @property
    def total(self) -> int:
        """Number of observations."""
        return self.zero + sum(self.counts.values())

    def dense(self) -> tuple[int, list[int]]:
        """Return the first index, and the counts from there on."""
        if not self.counts:
            return 0, []
        first, last = min(self.counts), max(self.counts)
        return first, [self.counts.get(one, 0) for one in range(first, last + 1)]

    def plus(self, other: Exponential) -> Exponential:
        """Return both together, in the lower scale."""
        scale = min(self.scale, other.scale)
        counts: dict[int, int] = {}
        for one in (self, other):
            for index, count in one.counts.items():
                now = index >> (one.scale - scale)
                counts[now] = counts.get(now, 0) + count
        sum_ = self.sum + other.sum
        return Exponential(scale, self.zero + other.zero, counts, sum_)

    def since(self, before: Exponential) -> Exponential:
        """Return what was counted after *before*, in the scale of now."""
        counts = dict(self.counts)
        for index, count in before.counts.items():
            now = index >> (before.scale - self.scale)
            counts[now] -= count
        rest = {index: count for index, count in counts.items() if count}
        zero = self.zero - before.zero
        return Exponential(self.scale, zero, rest, self.sum - before.sum)


class Counts:
    """Counts observations; not thread-safe. One takes half a microsecond."""

    __slots__ = ("_counts", "_high", "_low", "_shift", "_zero")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._shift = 0
        self._zero = 0
        self._low = self._high = 0

    def add(self, value: float) -> None:
        """Count *value*, which is 0 or above, and finite."""
        if not value:
            self._zero += 1
            return
        index = _index(value) >> self._shift
        if not self._counts:
            self._low = self._high = index
        low, high = min(self._low, index), max(self._high, index)
        if high - low >= MAX_SIZE:
            more = 0
            while (high >> more) - (low >> more) >= MAX_SIZE:
                more += 1
            self._merge(more)
            low, high, index = low >> more, high >> more, index >> more
        self._low, self._high = low, high
        self._counts[index] = self._counts.get(index, 0) + 1

    def snapshot(self, sum_: float) -> Exponential:
        """Return what was counted so far, with the sum of it."""
        return Exponential(
            MAX_SCALE - self._shift, self._zero, self._counts.copy(), sum_
        )

    def _merge(self, more: int) -> None:
        """Merge ``2 ** more`` buckets into one."""
        merged: dict[int, int] = {}
        for index, count in self._counts.items():
            merged[index >> more] = merged.get(index >> more, 0) + count
        self._counts = merged
        self._shift += more


_asked = False


def ask(*, wanted: bool) -> None:
    """Have histograms that are made from now on count exponentially, too, or not."""
    global _asked  # noqa: PLW0603 - one agent in a process; histograms are made anywhere
    _asked = wanted


def counts() -> Counts | None:
    """Return what a new histogram counts with, `None` if nothing was asked for."""
    return Counts() if _asked else None


def _index(value: float) -> int:
    """Return the index of *value* at the highest scale."""
    if value <= _SMALLEST:
        return _SMALLEST_INDEX
    mantissa, exponent = frexp(value)
    if mantissa == 0.5:  # noqa: PLR2004 - a power of two, which is a bound
        return ((exponent - 1) << MAX_SCALE) - 1
    return floor(log(value) * _FACTOR)
