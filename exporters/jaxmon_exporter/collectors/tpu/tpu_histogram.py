"""Distributions of a TPU's runtime as histograms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from jaxmon.catalog import Metric
from jaxmon.exposition.families import Sample, labels_text
from jaxmon_exporter.collectors.tpu.messages import Distribution


_MICROSECONDS = 1e6


def histogram(
    metric: Metric, labels: Sequence[str], told: Sequence[Distribution]
) -> list[Sample]:
    """
    Return the series of a histogram in seconds; *told* is in microseconds.

    Its bounds are bounds of the runtime, so that all counts are exact: for each
    bucket of *metric* the lowest one that is not below it.
    """
    if not told:
        return []
    count = sum(one.count for one in told)
    text = labels_text(metric.labels, labels)
    samples: list[Sample] = []
    bounds = told[0].bounds
    if all(one.bounds == bounds for one in told):
        counts = [0] * (len(bounds) + 1)
        for one in told:
            for index, some in enumerate(one.counts):
                counts[index] += some
        running = list(accumulate(counts))
        count = max(count, running[-1])
        for bound, below in _kept(metric.buckets, bounds, running):
            samples.append((f'{metric.name}_bucket{{{text},le="{bound}"}}', below))
    seconds = sum(one.mean * one.count for one in told) / _MICROSECONDS
    return [
        *samples,
        (f'{metric.name}_bucket{{{text},le="+Inf"}}', count),
        (f"{metric.name}_sum{{{text}}}", seconds),
        (f"{metric.name}_count{{{text}}}", count),
    ]


def _kept(
    wanted: Sequence[float], bounds: Sequence[float], running: Sequence[int]
) -> Iterator[tuple[float, int]]:
    """Yield bound, in seconds, and number of observations below it."""
    # Six digits: the name of a series must not depend on how a float rounds.
    seconds = [float(f"{bound / _MICROSECONDS:.6g}") for bound in bounds]
    chosen = {
        next((index for index, bound in enumerate(seconds) if bound >= want), None)
        for want in wanted
    }
    for index in sorted(index for index in chosen if index is not None):
        yield seconds[index], running[index]
