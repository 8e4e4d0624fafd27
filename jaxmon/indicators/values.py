"""
Quantities that a program logs, such as its loss.

Device arrays are kept until they are ready, then read by a thread of the agent; the
program never waits for them.

How one develops is judged by robust statistics: a median and the median absolute
deviation (MAD) do not move for the outlier that they are to detect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import isfinite, isnan
from typing import Any, NamedTuple, SupportsFloat, SupportsInt

from jaxmon import catalog
from jaxmon.clocks import wall_time
from jaxmon.exposition.families import Family, family_of
from jaxmon.facts.marked import LoggedValue, Quantity
from jaxmon.indicators.recorder import ByLabel, Labels, recorder


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
    Statistics of one quantity, written by one thread at a time: the latest finite
    value; `run` of the latest values are not finite, `since` the first of these and its
    time, `nan` if the latest is; `spike` is the latest of those far above the median
    before it.
    """

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
        """Add *value*, logged at the Unix *time* in a *step*, else numbered from 1."""
        self.count += 1
        logged = Logged(self.count if step is None else step, value)
        if not isfinite(value):
            self.nonfinite += 1
            self.run += 1
            self.nan = isnan(value)
            if self.since is None:
                self.since = logged, time
            return
        self.run, self.since = 0, None
        if (usual := self._usual_if_spike(value)) is not None:
            # One that lasts is one spike.
            if self.spike is None or self.latest != self.spike[0]:
                self.spikes += 1
            self.spike = logged, usual
        self.latest = logged
        self._recent.append(value)
        self._note_best(value)

    def explain(self) -> Quantity:
        """Return the statistics."""
        # The floor is what nine tenths of the recent values exceed.
        ends, recent = dict[str, Any](), sorted(self._recent)
        if (latest := self.latest) is not None:
            ends["latest"] = LoggedValue(*latest)
        if (since := self.since) is not None:
            logged, time = since
            kind = "nan" if self.nan else "inf"
            ends["since"] = LoggedValue(step=logged.step, time=time, kind=kind)
        if (spike := self.spike) is not None:
            logged, usual = spike
            ends["spike"] = LoggedValue(*logged, usual=usual)
        return Quantity(
            count=self.count,
            nonfinite=self.nonfinite,
            run=self.run,
            spikes=self.spikes,
            first=self._first,
            best=self._best,
            floor=recent[len(recent) // 10] if len(recent) == _WINDOW else None,
            **ends,
        )

    def _usual_if_spike(self, value: float) -> float | None:
        """Return the median of the recent values if *value* is far above it."""
        recent = self._recent
        # Most values are no higher than the highest of the recent ones.
        if len(recent) < _SETTLED or value <= (highest := max(recent)):
            return None
        middle = median(recent)
        spread = median([abs(value - middle) for value in recent])
        far = max(
            _DEVIATIONS * _OF_MAD * spread, abs(middle), _BEYOND * (highest - middle)
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


SITE = "values"


class Record(NamedTuple):
    """One call of `log_values`; step and values may be arrays on a device."""

    time: float
    step: Any
    values: tuple[tuple[str, Any], ...]


def log_values(
    values: Mapping[str, SupportsFloat], *, step: SupportsInt | None = None
) -> None:
    """
    Record the current loss and other quantities of a training loop.

    Exported as ``jaxmon_value``. Non-finite values are counted, and so are values far
    above the recent ones; ``jaxmon explain`` reports a loss that became NaN, jumps or
    diverges, with the step.

    Never waits for the device and never raises: arrays are read in the background when
    they are ready, and dropped if they are donated or deleted before. Costs about a
    microsecond, next to nothing without an agent. Reading takes 20 µs per value on
    another thread: of more than 50 calls per second, after the first 2,000, some are
    skipped, but never the latest.

    Args:
        values: by name; arrays of one element, on a device or not, or Python numbers.
            At most ``max_functions`` names are distinguished.
        step: number of the step; without it, calls are numbered from 1.

    Example:
        >>> import jaxmon
        >>> jaxmon.log_values({"loss": 0.25, "grad_norm": 1.5}, step=1)
    """
    figures = recorder()
    if figures is None:
        return
    try:
        given = tuple([(str(name), value) for name, value in values.items()])
        figures.logged.put(given, step)
    except Exception:  # noqa: BLE001 - theirs: counted, and the program goes on
        figures.guard.failed(SITE, stays_on=True, theirs=True)


class Values:
    """
    Logged quantities, at most *limit*. `reader` takes each record and reads it later;
    may reject it with an exception. Before there is one, *begin* is called, to set it.
    """

    def __init__(self, limit: int, begin: Callable[[], object] = bool) -> None:
        self.labels = Labels(limit)
        self._begin = begin
        self.reader: Callable[[Record], None] | None = None
        self._trends = ByLabel(self.labels, lambda _: Trend())

    def put(self, values: tuple[tuple[str, Any], ...], step: Any) -> None:
        """Pass *values*, by name, to the reader. Thread-safe."""
        if self.reader is None:
            self._begin()
        if self.reader is not None:
            self.reader(Record(wall_time(), step, values))

    def observe(self, name: str, value: float, step: int | None, time: float) -> None:
        """Add a *value* as in `Trend.add`. For one thread at a time."""
        self._trends.of(name).add(value, step, time)

    def explain(self) -> tuple[Quantity, ...]:
        """Return the statistics of each quantity."""
        trends = self._trends.kept.copy().items()
        return tuple([trend.explain().replace(name=name) for name, trend in trends])

    def collect(self) -> list[Family]:
        """Return the families of logged quantities."""
        trends = self._trends.kept.copy().items()
        latest = [(n, t.latest.value) for n, t in trends if t.latest is not None]
        # What was never finite may be a placeholder.
        runs = [(name, trend.run if trend.latest else 0) for name, trend in trends]
        return [
            family_of(catalog.VALUE, latest),
            family_of(catalog.VALUE_NONFINITE, [(n, t.nonfinite) for n, t in trends]),
            family_of(catalog.VALUE_NONFINITE_RUN, runs),
            family_of(catalog.VALUE_SPIKES, [(n, t.spikes) for n, t in trends]),
        ]
