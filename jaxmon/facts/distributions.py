"""Histograms as read from a response: differences, sums and quantiles."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple, Self

from jaxmon.exposition.families import Family, quantile
from jaxmon.exposition.parse import labels


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

    def since(self, before: Self | None) -> Self:
        """Return what was observed since *before*; all of it after a restart."""
        if (
            before is None
            or before.bounds != self.bounds
            or before.observed > self.observed
        ):
            return self
        counts = array("d", map(_minus, self.counts, before.counts))
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
    same = [one for one in every if one.bounds == bounds]
    counts = array("d", map(sum, zip(*(one.counts for one in same), strict=True)))
    return Observations(bounds, counts, sum(one.sum for one in same))


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


def _number(text: str) -> float:
    known = _BOUNDS.get(text)
    if known is None:
        try:
            known = float(text)
        except ValueError:
            known = -inf  # of no use: the histogram has no infinite bound then
        if len(_BOUNDS) < _MOST_BOUNDS:
            _BOUNDS[text] = known
    return known


def _minus(now: float, before: float) -> float:
    return max(now - before, 0.0)


_MOST_BOUNDS = 1000
_BOUNDS: dict[str, float] = {"+Inf": inf}
# Most histograms have the bounds of the catalogue, which are kept once.
_SAME: dict[tuple[float, ...], tuple[float, ...]] = {}
