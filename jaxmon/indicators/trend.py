"""
How one logged quantity develops: non-finite values, spikes, divergence.

Robust statistics of few values: a median and the median absolute deviation (MAD) do not
move for the outlier that they are to detect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import isfinite, isnan
from typing import Any, NamedTuple

from jaxmon.facts.marked import LoggedValue, Quantity


# Values that the median is of, and how many there must be before one can be a spike.
_WINDOW = 50
_SETTLED = 20
# A spike is above the median by this many standard deviations, estimated from the MAD
# (1.4826 of it, for a normal distribution), and by the median itself.
_DEVIATIONS = 10.0
_OF_MAD = 1.4826
# It is also this much farther from the median than the highest of the others: small
# batches make losses with outliers.
_BEYOND = 2.0
# Consecutive values of which the lowest median is the best that was reached.
_CHUNK = 10


def median(values: Iterable[float]) -> float:
    """Return the middle one of *values*, the higher of two. Raises if there is none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


class Logged(NamedTuple):
    """A value and the step at which it was logged."""

    step: int
    value: float


class Trend:
    """
    Statistics of one quantity. Written by one thread at a time.

    Attributes:
        count: number of values.
        latest: the latest finite one.
        nonfinite: number of non-finite values.
        run: how many of them are the latest values, without a finite one since.
        since: the first of these, and its Unix time.
        nan: whether the latest of these is NaN, not infinite.
        spikes: number of values far above those before them.
        spike: the latest of these, and the median before it.
    """

    __slots__ = (
        "_best",
        "_chunk",
        "_first",
        "_recent",
        "count",
        "latest",
        "nan",
        "nonfinite",
        "run",
        "since",
        "spike",
        "spikes",
    )

    def __init__(self) -> None:
        self.count = self.nonfinite = self.run = self.spikes = 0
        self.nan = False
        self.latest: Logged | None = None
        self.since: tuple[Logged, float] | None = None
        self.spike: tuple[Logged, float] | None = None
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self._chunk: list[float] = []
        self._first: float | None = None
        self._best: float | None = None

    def add(self, value: float, step: int | None, time: float) -> None:
        """
        Add *value*. Costs a microsecond, ten if it may be a spike.

        Args:
            value: any float.
            step: the program's number of the step, else values are numbered from 1.
            time: Unix time at which it was logged.
        """
        self.count += 1
        one = Logged(self.count if step is None else step, value)
        if not isfinite(value):
            self.nonfinite += 1
            self.run += 1
            self.nan = isnan(value)
            if self.since is None:
                self.since = one, time
            return
        self.run, self.since = 0, None
        if (usual := self._usual_if_spike(value)) is not None:
            # One that lasts is one spike.
            if self.spike is None or self.latest != self.spike[0]:
                self.spikes += 1
            self.spike = one, usual
        self.latest = one
        self._recent.append(value)
        self._note_best(value)

    def explain(self) -> Quantity:
        """Return the statistics."""
        ends: dict[str, Any] = {}
        if (latest := self.latest) is not None:
            ends["latest"] = LoggedValue(*latest)
        if (since := self.since) is not None:
            one, time = since
            kind = "nan" if self.nan else "inf"
            ends["since"] = LoggedValue(step=one.step, time=time, kind=kind)
        if (spike := self.spike) is not None:
            one, usual = spike
            ends["spike"] = LoggedValue(*one, usual=usual)
        return Quantity(
            count=self.count,
            nonfinite=self.nonfinite,
            run=self.run,
            spikes=self.spikes,
            first=self._first,
            best=self._best,
            floor=self._floor(),
            **ends,
        )

    def _usual_if_spike(self, value: float) -> float | None:
        """Return the median of the recent values if *value* is far above it."""
        recent = self._recent
        # Most values are no higher than the highest of the recent ones.
        if len(recent) < _SETTLED or value <= (highest := max(recent)):
            return None
        middle = median(recent)
        spread = median([abs(one - middle) for one in recent])
        far = max(
            _DEVIATIONS * _OF_MAD * spread,
            abs(middle),
            _BEYOND * (highest - middle),
        )
        # Where nothing has varied around 0, nothing says what is far.
        return middle if far and value > middle + far else None

    def _note_best(self, value: float) -> None:
        self._chunk.append(value)
        if len(self._chunk) < _CHUNK:
            return
        middle = median(self._chunk)
        self._chunk.clear()
        if self._first is None:
            self._first = middle
        if self._best is None or middle < self._best:
            self._best = middle

    def _floor(self) -> float | None:
        """Return what nine tenths of the recent values exceed; `None` for few."""
        recent = sorted(self._recent)
        return recent[len(recent) // 10] if len(recent) == _WINDOW else None
