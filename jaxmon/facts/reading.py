"""The numbers of one response that screens show, by process and labels."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf, isfinite
from typing import NamedTuple, Self, TypeAlias, TypeVar

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, quantile
from jaxmon.exposition.parse import labels
from jaxmon.facts.record import NOTHING, summed


_LE = ',le="'


class Observations(NamedTuple):
    """
    The observations of a histogram.

    Attributes:
        bounds: upper bounds of the buckets; the last one is infinite.
        counts: observations up to each bound.
        sum: of the observed values.
    """

    bounds: tuple[float, ...]
    counts: Sequence[float]
    sum: float

    @property
    def observed(self) -> float:
        """Number of observations."""
        return self.counts[-1]

    @property
    def mean(self) -> float | None:
        """Mean of the observed values, `None` without any."""
        return self.sum / self.observed if self.observed > 0 else None

    def above(self, value: float) -> float:
        """Return the number of observations above the first bound from *value* on."""
        return self.observed - self.counts[bisect_left(self.bounds, value)]

    def since(self, before: Self | None) -> Self:
        """Return what was observed since *before*; all of it after a restart."""
        if (
            before is None
            or before.bounds != self.bounds
            or before.observed > self.observed
        ):
            return self
        both = zip(self.counts, before.counts, strict=True)
        counts = array("d", [max(now - then, 0.0) for now, then in both])
        return self._replace(counts=counts, sum=self.sum - before.sum)

    def quantile(self, fraction: float) -> float | None:
        """Return a `quantile` of the observations, `None` without any."""
        return quantile(self.bounds[:-1], self.counts, fraction)


def total(found: Iterable[Observations]) -> Observations | None:
    """
    Return all observations of *found*, `None` without any; histograms with other bounds
    than the first one's are ignored.
    """
    every = list(found)
    if not every:
        return None
    bounds = every[0].bounds
    same = [observed for observed in every if observed.bounds == bounds]
    counts = array("d", map(sum, zip(*(of.counts for of in same), strict=True)))
    return Observations(bounds, counts, sum(observed.sum for observed in same))


def distributions(
    family: Family, default: Mapping[str, str]
) -> dict[tuple[str, ...], Observations]:
    """
    Return the histograms of *family* by process and labels.

    Args:
        family: a histogram of the catalogue.
        default: labels of the series that do not have them.
    """
    metric = family.metric
    names = ("worker", *metric.labels)
    bucket, summed = f"{metric.name}_bucket", f"{metric.name}_sum"
    buckets: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    sums: dict[tuple[str, ...], float] = {}
    latest, into = "", [(0.0, 0.0)]
    for series, value in family.samples:
        # Of one histogram, all buckets follow each other, and differ in their bound.
        head, _, bound = series.rpartition(_LE)
        if head and head == latest and bound.endswith('"}'):
            into.append((_number(bound[:-2]), value))
            continue
        name, _, text = series.partition("{")
        if name not in (bucket, summed):
            continue
        found = {**default, **labels(text)}
        key = tuple([found.get(label, "") for label in names])
        if name == summed:
            sums[key] = value
            continue
        latest, into = head, buckets.setdefault(key, [])
        into.append((_number(found.get("le", "")), value))
    return {
        key: made
        for key, pairs in buckets.items()
        if (made := _distribution(pairs, sums.get(key, 0.0))) is not None
    }


def _distribution(
    pairs: list[tuple[float, float]], observed: float
) -> Observations | None:
    pairs.sort()
    bounds = tuple([bound for bound, _ in pairs])
    counts = array("d", [count for _, count in pairs])
    if bounds[-1] != inf or not isfinite(observed) or not all(map(isfinite, counts)):
        return None
    return Observations(_SAME.setdefault(bounds, bounds), counts, observed)


@lru_cache(maxsize=1000)
def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -inf  # of no use: the histogram has no infinite bound then


# Most histograms have the bounds of the catalogue, which are kept once.
_SAME: dict[tuple[float, ...], tuple[float, ...]] = {}


T = TypeVar("T")

Key: TypeAlias = tuple[str, ...]
"""The process, then the values of the metric's labels in their order."""

Observed: TypeAlias = Mapping[Key, Observations]
"""Histograms by the values of their labels."""

Row: TypeAlias = tuple[Mapping[str, str], float]

COMPARED = (catalog.REQUEST_SECONDS, catalog.BATCH_FILL_RATIO, catalog.STEP_SECONDS)
"""The histograms of which the last minute is shown."""

_COUNTERS = (
    catalog.DATA_WAIT_SECONDS,
    catalog.TIME_SECONDS,
    catalog.CHECKPOINT_FAILURES,
    catalog.DROPPED,
    catalog.PROCESS_START_TIME_SECONDS,
)
_GAUGES = (
    catalog.UPTIME_SECONDS,
    catalog.COUNTING_SECONDS,
    catalog.REQUESTS_IN_PROGRESS,
    catalog.REQUEST_OLDEST_SECONDS,
    catalog.QUEUE_DEPTH,
    catalog.STEP_AGE_SECONDS,
    catalog.ACTIVITY_RUNNING_SECONDS,
    catalog.ACTIVITY_AGE_SECONDS,
    catalog.VALUE_NONFINITE_RUN,
    catalog.NONFINITE_OUTPUTS,
    catalog.COMPILES_IN_PROGRESS,
    catalog.COMPILE_OLDEST_SECONDS,
    catalog.DEVICE_MEMORY_BYTES,
    catalog.PROCESS_RESIDENT_MEMORY_BYTES,
    catalog.AGENT_UP,
    catalog.AGENT_DIED,
    catalog.ACCELERATOR_UP,
    catalog.ACCELERATOR_UTILIZATION_RATIO,
    catalog.ACCELERATOR_MEMORY_USED_BYTES,
    catalog.ACCELERATOR_MEMORY_SIZE_BYTES,
    catalog.HOST_MEMORY_SIZE_BYTES,
    catalog.HOST_MEMORY_AVAILABLE_BYTES,
)
# Parsed for a summary only.
_DETAILS = (
    catalog.RUNTIME_INFO,
    catalog.DEVICE_INFO,
    catalog.LIVE_ARRAYS,
    catalog.LIVE_ARRAY_BYTES,
    catalog.ACCELERATOR_INFO,
    catalog.ACCELERATOR_POWER_WATTS,
    catalog.ACCELERATOR_POWER_LIMIT_WATTS,
    catalog.ACCELERATOR_TEMPERATURE_CELSIUS,
)
# By function: many series, so that their sums are kept of those that are compared.
_SUMMED = (catalog.COMPILES, catalog.ERRORS)
_BY_FUNCTION = (
    catalog.JIT_CALLS,
    catalog.JIT_CACHE_HITS,
    catalog.JIT_CACHE_MISSES,
    catalog.RECOMPILES,
    *_SUMMED,
)
_COMPILE_SUM = f"{catalog.COMPILE_SECONDS.name}_sum"


class Reading(NamedTuple):
    """
    What a response says, at one moment.

    Attributes:
        time: Unix time.
        values: of counters and gauges, by the name of the metric.
        histograms: by the name of the metric.
        sums: of a metric that many functions have, by process.
        began: the first readings of processes that count on for others of their slots.
    """

    time: float
    values: Mapping[str, Mapping[Key, float]]
    histograms: Mapping[str, Observed]
    sums: Mapping[str, Mapping[str, float]]
    began: Mapping[str, Reading] = NOTHING

    def of(self, metric: Metric) -> Mapping[Key, float]:
        """Return the values of *metric*."""
        return self.values.get(metric.name, {})

    def rows(self, metric: Metric) -> Iterator[Row]:
        """Yield labels and value of each series of *metric*."""
        names = label_names(metric)
        for key, value in self.of(metric).items():
            yield dict(zip(names, key, strict=True)), value

    def by(self, metric: Metric, *names: str, **only: str) -> dict[Key, float]:
        """
        Return values by the labels *names*, where *only* holds; over other labels they
        are added up.
        """
        return summed(
            (tuple([row[name] for name in names]), value)
            for row, value in self.rows(metric)
            if only.items() <= row.items()
        )

    def distributions(self, metric: Metric) -> Observed:
        """Return the histograms of *metric*."""
        return self.histograms.get(metric.name, {})

    def started(self, worker: str) -> float | None:
        """Return when the process *worker* started, in Unix time, if it is known."""
        return self.of(catalog.PROCESS_START_TIME_SECONDS).get((worker,))

    def inherited(self, worker: str) -> bool:
        """
        Return whether a slot counts for longer than its process *worker* exists: its
        counters are also those of processes before it.
        """
        counting = self.of(catalog.COUNTING_SECONDS).get((worker,), 0.0)
        return counting > self.of(catalog.UPTIME_SECONDS).get((worker,), counting)

    def compared(self, *metrics: Metric) -> Reading:
        """
        Return the part of it that a later one is compared with, in all that is compared
        or in *metrics* alone.
        """
        names = {metric.name for metric in metrics or (*COMPARED, *_COUNTERS)}
        values = {name: of for name, of in self.values.items() if name in names}
        histograms = {name: of for name, of in self.histograms.items() if name in names}
        return Reading(self.time, values, histograms, {} if metrics else self.sums)


def read(
    families: Iterable[Family], *, time: float, worker: str = "", details: bool = True
) -> Reading:
    """
    Return what *families* say; metrics that no screen shows are skipped unread.

    Args:
        families: of all processes, with the label ``worker``, and of the host.
        time: when, in Unix time.
        worker: the process of those without that label.
        details: whether to read what belongs to functions, arrays and versions, which
            most of the series do.
    """
    values: dict[str, dict[Key, float]] = defaultdict(dict)
    histograms: dict[str, dict[Key, Observations]] = defaultdict(dict)
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    default = {"worker": worker}
    wanted = _WANTED if details else _BRIEF
    for family in families:
        name = family.metric.name
        if name in _HISTOGRAMS:
            histograms[name].update(distributions(family, default))
        if name in wanted:
            _parse(family, default, values[name])
        if name in _SUMS:
            _add(family, worker, sums[name])
    return Reading(time, dict(values), dict(histograms), dict(sums))


def by_process(reading: Reading) -> dict[str, Reading]:
    """Return what *reading* says of each process; what belongs to none has ``""``."""
    values = _split(reading.values)
    histograms = _split(reading.histograms)
    sums: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for name, of in reading.sums.items():
        for worker, value in of.items():
            sums[worker][name] = {worker: value}
    return {
        worker: Reading(
            reading.time,
            values.get(worker, {}),
            histograms.get(worker, {}),
            sums.get(worker, {}),
            reading.began,
        )
        for worker in {*values, *histograms, *sums}
    }


def label_names(metric: Metric) -> tuple[str, ...]:
    """Return what the values of a key of *metric* are."""
    return ("worker", *(name for name in metric.labels if name != "worker"))


def in_order(workers: Iterable[str]) -> tuple[str, ...]:
    """Return *workers* by the number of their slots."""
    return tuple(sorted(workers, key=lambda worker: (len(worker), worker)))


def _split(found: Mapping[str, Mapping[Key, T]]) -> dict[str, dict[str, dict[Key, T]]]:
    split: dict[str, dict[str, dict[Key, T]]] = defaultdict(lambda: defaultdict(dict))
    for name, of in found.items():
        for key, value in of.items():
            split[key[0]][name][key] = value
    return {worker: dict(of) for worker, of in split.items()}


def _parse(family: Family, default: Mapping[str, str], into: dict[Key, float]) -> None:
    """Add the values of *family*; JSON has no NaN, so that those are omitted."""
    metric = family.metric
    names = label_names(metric)
    wanted = _COMPILE_SUM if metric is catalog.COMPILE_SECONDS else metric.name
    for series, value in family.samples:
        name, _, text = series.partition("{")
        if name == wanted and isfinite(value):
            found = {**default, **labels(text)}
            into[tuple([found.get(label, "") for label in names])] = value


def _add(family: Family, default: str, into: dict[str, float]) -> None:
    """Add up the values of *family* by process, which all series usually share."""
    samples = family.samples
    if not samples:
        return
    first, last = (_process(samples[at][0], default) for at in (0, -1))
    whole = sum([value for _, value in samples])
    # An agent's series are of one process, and ours are sorted.
    if first == last and isfinite(whole):
        into[first] += whole
        return
    for series, value in samples:
        if isfinite(value):
            into[_process(series, default)] += value


def _process(series: str, default: str) -> str:
    return labels(series.partition("{")[2]).get("worker", default)


_HISTOGRAMS = frozenset(metric.name for metric in COMPARED)
_SUMS = frozenset(metric.name for metric in _SUMMED)
_BRIEF = frozenset(metric.name for metric in (*_COUNTERS, *_GAUGES))
_WANTED = _BRIEF.union(
    [metric.name for metric in (*_DETAILS, *_BY_FUNCTION, catalog.COMPILE_SECONDS)]
)
