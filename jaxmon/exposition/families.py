"""
Metric families: a catalogue metric with its samples.

A sample names its series as exported, with escaped labels
(``jaxmon_jit_calls_total{function="train.step"}``). The owner of a series builds that
string once and keeps it, so a scrape only adds numbers to ready-made text.

Exemplars: one observation of a bucket, with the ids of its trace. Kept as OpenMetrics
writes them after the value of a series: ``# {trace_id="…",span_id="…"} 0.67
1700000000.123``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, islice, repeat
from math import inf, isfinite
from operator import length_hint
from types import MappingProxyType
from typing import Any, TypeAlias

from jaxmon.catalog import Metric
from jaxmon.clocks import wall_time
from jaxmon.threads import RLock
from jaxmon.tuples import NamedTuple


LONGEST = 128
"""Characters that OpenMetrics allows names and values of an exemplar's labels."""

_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*+)="([^"\\]*+(?:\\[\\"n][^"\\]*+)*+)"'
_ESCAPE = r"\\(.)"
_TEXT = r"# \{(.*)\} (\S+)(?: (\S+))?"
# Of a `Tally`.
_FULL = 1 << 62
# In seconds; the year 5138.
_LATEST = 1e11


class SpanIds(NamedTuple):
    """The ids, in hexadecimal, of a span whose trace is kept, and of that trace."""

    trace: str
    span: str


class Exemplar(NamedTuple):
    """An observation, with labels such as ``trace_id``, in the unit of the metric."""

    labels: dict[str, str]
    value: float
    time: float | None


def text(ids: SpanIds, value: float, time: float) -> str:
    """Return the exemplar of a *value* observed at *time* in a span."""
    return f'# {{trace_id="{ids.trace}",span_id="{ids.span}"}} {value} {time:.3f}'


def read(text: str) -> Exemplar | None:
    """Return the content of an exemplar, `None` if it is not a usable one."""
    match = re.fullmatch(_TEXT, text)
    return None if match is None else checked(*match.groups(""))


def checked(labels: str, value: str, time: str) -> Exemplar | None:
    """Return the exemplar of these texts, `None` if OpenMetrics forbids it."""
    pairs = [
        (name, re.sub(_ESCAPE, unescaped, content))
        for name, content in re.findall(_LABEL, labels)
    ]
    found = dict(pairs)
    length = sum(len(name) + len(content) for name, content in pairs)
    if len(found) < len(pairs) or length > LONGEST:
        return None
    try:
        number, moment = float(value), float(time) if time else None
    except ValueError:
        return None
    sane = moment is None or 0 <= moment < _LATEST
    return Exemplar(found, number, moment) if isfinite(number) and sane else None


def unescaped(escape: re.Match[str]) -> str:
    """Return the character of an escape sequence, whose second is its group 1."""
    return "\n" if escape[1] == "n" else escape[1]


Sample: TypeAlias = tuple[str, float]

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family(NamedTuple):
    """One metric and its samples at one moment, with exemplars of some series."""

    metric: Metric
    samples: list[Sample]
    exemplars: Mapping[str, str] = MappingProxyType({})


Collect: TypeAlias = Callable[[], Iterable[Family]]
"""Returns what a scrape is to have of something."""


def labels_text(names: Sequence[str], values: Iterable[object]) -> str:
    """Return ``a="x",b="y"``, with values escaped as both text formats require."""
    return ",".join(
        [
            f'{name}="{_escaped(str(value))}"'
            for name, value in zip(names, values, strict=True)
        ]
    )


def _escaped(text: str) -> str:
    text = printable(text)
    # Searching for rare characters takes a tenth of the time of translating.
    if '"' in text or "\\" in text or "\n" in text:
        return text.translate(_ESCAPES)
    return text


def printable(text: str) -> str:
    """Return *text* with unprintable characters but line breaks escaped."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character == "\n" or character.isprintable()
        else character.encode("unicode_escape").decode()
        for character in text
    )


def series(metric: Metric, *values: object) -> str:
    """Return the series of *metric* with a value for each label, or `ValueError`."""
    if not metric.labels and not values:
        return metric.name
    return f"{metric.name}{{{labels_text(metric.labels, values)}}}"


def histograms(metric: Metric, found: Iterable[Histogram]) -> Family:
    """Return the family *metric* of the histograms *found*, with their exemplars."""
    samples: list[Sample] = []
    kept: dict[str, str] = {}
    for histogram in found:
        samples += histogram.samples()
        kept.update(histogram.exemplars())
    return Family(metric, samples, kept)


def family_of(metric: Metric, rows: Iterable[tuple[Any, ...]]) -> Family:
    """Return a series of *metric* for each of *rows*: its labels, and its value."""
    return Family(metric, [(series(metric, *labels), n) for *labels, n in rows])


def gauge(metric: Metric, value: float, *labels: object) -> Family:
    """Return a family of one sample; counters and infos work the same way."""
    return Family(metric, [(series(metric, *labels), value)])


def by_label(metric: Metric, values: Mapping[Any, float]) -> Family:
    """Return *metric* with the values of a label, or by tuples of its labels."""
    return Family(
        metric,
        [
            (series(metric, *(key if isinstance(key, tuple) else (key,))), value)
            for key, value in values.items()
        ],
    )


def samples_of(families: Iterable[Family], *metrics: Metric) -> list[Sample]:
    """Return the samples of *metrics* in *families*."""
    names = {metric.name for metric in metrics}
    return [
        sample
        for family in families
        if family.metric.name in names
        for sample in family.samples
    ]


def quantile(
    bounds: Sequence[float], running: Sequence[float], fraction: float
) -> float | None:
    """
    Return the value below which *fraction* (0 to 1) of the observations lie, as
    Prometheus's ``histogram_quantile`` estimates it; `None` without observations.

    The observations of a bucket are taken as evenly spread over it; the highest bound
    is the most. *running* has the observations up to each of the finite *bounds*, and
    all.
    """
    if not bounds or running[-1] <= 0:
        return None
    rank = fraction * running[-1]
    index = bisect_left(running, rank)
    if index >= len(bounds):
        return bounds[-1]
    before = running[index - 1] if index else 0.0
    low = bounds[index - 1] if index else min(0.0, bounds[0])
    inside = running[index] - before
    part = (rank - before) / inside if inside > 0 else 1.0
    return low + (bounds[index] - low) * part


class Tally:
    """
    Counts up by one, from any thread, without a lock.

    `itertools.repeat` counts down in one C call, which is atomic under the GIL, and can
    be read. Adding costs 30 ns; ``n += 1`` on an attribute would lose counts between
    threads.
    """

    __slots__ = ("_ticks", "add")

    def __init__(self) -> None:
        self._ticks = repeat(1, _FULL)
        self.add = self._ticks.__next__

    def add_many(self, number: int) -> None:
        """Count up by *number*."""
        deque(islice(self._ticks, number), maxlen=0)

    @property
    def value(self) -> int:
        """Number of calls of `add`."""
        return _FULL - length_hint(self._ticks)


class Histogram:
    """
    Counts observations into the buckets of *metric*, for one set of labels.

    Thread-safe. An observation costs about a microsecond; keep it off hotter paths. The
    *sum* is of the observed values.
    """

    __slots__ = (
        *("_counts", "_exemplars", "_labels", "_lock", "_metric", "_series", "sum"),
    )

    def __init__(self, metric: Metric, *labels: object) -> None:
        self._metric = metric
        self._labels = labels
        self._series: tuple[str, ...] = ()
        self._counts = [0] * (len(metric.buckets) + 1)
        self.sum = 0.0
        self._exemplars: dict[int, str] | None = None
        # Reentrant: while we hold it, the garbage collector may end something that
        # is measured, on this thread.
        self._lock = RLock()

    def observe(self, value: float, ids: SpanIds | None = None) -> None:
        """
        Count *value*; a bucket includes its bound, and has the latest observation with
        the *ids* of a span as its exemplar. Negative values, of a clock that was
        replaced, count as 0; values that are not finite are not counted, as they would
        spoil the sum.
        """
        if not value < inf:
            return
        if value < 0.0:  # noqa: PLR1730 - a call would take as long as all of this
            value = 0.0
        index = bisect_left(self._metric.buckets, value)
        with self._lock:
            self._counts[index] += 1
            self.sum += value
        if ids is not None:
            if self._exemplars is None:
                self._exemplars = {}
            self._exemplars[index] = text(ids, value, wall_time())

    def observe_all(self, values: list[float]) -> None:
        """
        Count *values* and take them from the list; a third of what `observe` costs
        each. If a signal handler raises meanwhile, those left are not counted yet.
        """
        if not values:
            return
        buckets, counts = self._metric.buckets, self._counts
        with self._lock:
            while values:
                value = values[-1]
                index = bisect_left(buckets, value)
                # No call from here on: an interruption comes before or after.
                if 0.0 <= value < inf:
                    counts[index] += 1
                    self.sum += value
                elif value < 0.0:
                    counts[0] += 1
                del values[-1]

    @property
    def count(self) -> int:
        """Number of observations."""
        with self._lock:
            return sum(self._counts)

    @property
    def mean(self) -> float | None:
        """Mean of the observed values, `None` without any."""
        with self._lock:
            count = sum(self._counts)
            return self.sum / count if count else None

    def quantile(self, fraction: float) -> float | None:
        """Return a `quantile` of the observations."""
        with self._lock:
            running = list(accumulate(self._counts))
        return quantile(self._metric.buckets, running, fraction)

    def samples(self) -> list[Sample]:
        """Return buckets, sum and count, consistent with each other."""
        with self._lock:
            counts, total = list(self._counts), self.sum
        running = list(accumulate(counts))
        # Built by the first reader, because observing must be fast.
        self._series = self._series or self._names()
        return list(zip(self._series, (*running, total, running[-1]), strict=True))

    def exemplars(self) -> dict[str, str]:
        """Return the exemplars by series, as OpenMetrics writes them."""
        if self._exemplars is None:
            return {}
        names = self._series = self._series or self._names()
        return {names[index]: text for index, text in self._exemplars.copy().items()}

    def _names(self) -> tuple[str, ...]:
        name, text = self._metric.name, labels_text(self._metric.labels, self._labels)
        lead = f"{text}," if text else ""
        tail = f"{{{text}}}" if text else ""
        bounds = (*map(float, self._metric.buckets), "+Inf")
        buckets = (f'{name}_bucket{{{lead}le="{bound}"}}' for bound in bounds)
        return (*buckets, f"{name}_sum{tail}", f"{name}_count{tail}")
