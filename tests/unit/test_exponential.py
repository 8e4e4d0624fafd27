"""Exponential buckets are those of OpenTelemetry's SDK, observation by observation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import (
    ExponentialBucketHistogramAggregation,
    View,
)

from jaxmon.exposition import exponential
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Family, Histogram, histograms
from tests.unit.test_otlp_points import SECOND, TIMES, converter, pushed


RANDOM = random.Random(7)  # noqa: S311 - nothing secret
VALUES = {
    "times": [RANDOM.lognormvariate(-3, 2) for _ in range(2000)],
    "powers of two": [2.0**one for one in range(-30, 30)] * 2,
    "all bounds": [2.0 ** (one / 8) for one in range(-200, 200)],
    "one": [0.25] * 3,
    "zeros": [0.0, 0.0, 1.0],
    "far apart": [5e-324, 1e-300, 1e-9, 1.0, 1e9, 1e300],
    "whole numbers": [float(one) for one in range(500)],
}


@pytest.fixture(autouse=True)
def asked() -> Iterator[None]:
    """Have histograms count exponentially, as the variable does."""
    exponential.ask(wanted=True)
    yield
    exponential.ask(wanted=False)


def of_the_sdk(values: list[float]) -> tuple[object, ...]:
    """Return scale, zeros, first bucket and counts that the SDK has for *values*."""
    reader = InMemoryMetricReader()
    view = View(
        instrument_name="t", aggregation=ExponentialBucketHistogramAggregation()
    )
    provider = MeterProvider([reader], views=[view], shutdown_on_exit=False)
    instrument = provider.get_meter("t").create_histogram("t")
    for value in values:
        instrument.record(value)
    data = reader.get_metrics_data()
    assert data is not None
    points: Any = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    (point,) = points
    found = tuple(point.positive.bucket_counts)
    provider.shutdown()
    counts = [one for one in found if one]
    first = point.positive.offset + found.index(counts[0])
    last = len(found) - found[::-1].index(counts[-1])
    return point.scale, point.zero_count, first, found[found.index(counts[0]) : last]


def counted(values: list[float]) -> Histogram:
    """Return a histogram of *values*."""
    histogram = Histogram(TIMES, "a")
    for value in values:
        histogram.observe(value)
    return histogram


@pytest.mark.parametrize("name", VALUES)
def test_buckets_are_those_of_the_sdk(name: str) -> None:
    """Scale, first bucket and every count equal those of the SDK's aggregation."""
    values = VALUES[name]
    found = pushed(converter(), [histograms(TIMES, [counted(values)])])
    metric = found.metrics()[TIMES.name]
    (point,) = metric.exponential_histogram.data_points
    ours = (
        point.scale,
        point.zero_count,
        point.positive.offset,
        tuple(point.positive.bucket_counts),
    )
    assert ours == of_the_sdk(values)
    assert point.count == len(values)
    # Since Python 3.12, `sum` makes up for rounding.
    assert point.sum == pytest.approx(sum(values, 0.0))
    assert not point.HasField("min")


def test_deltas_add_up_across_scales() -> None:
    """A delta has what came since the last that arrived, in the scale of now."""
    one = converter(temporality="delta")
    histogram = Histogram(TIMES, "a")
    arrived: list[tuple[int, int]] = []

    def push(time: int, values: list[float], *, arrives: bool) -> None:
        for value in values:
            histogram.observe(value)
        found = pushed(one, [histograms(TIMES, [histogram])], time * SECOND).metrics()
        (point,) = found[TIMES.name].exponential_histogram.data_points
        if arrives:
            one.delivered()
            arrived.append((point.scale, point.count))
            assert sum(point.positive.bucket_counts) + point.zero_count == point.count

    push(200, [1.0, 1.001, 0.0], arrives=True)
    push(300, [1e6], arrives=False)
    push(400, [2.0], arrives=True)
    assert [count for _, count in arrived] == [3, 2]
    assert arrived[0][0] > arrived[1][0]


def test_histograms_add_up() -> None:
    """Two together are as one of all values, whatever their scales."""
    near, far = [1.0, 1.001, 0.0], [1e-6, 1e6, 3.0]
    (one,), (other,), (both,) = (
        counted(values).exponentials().values() for values in (near, far, [*near, *far])
    )
    found = one.plus(other)
    assert (found.scale, found.zero, found.counts) == (both[0], both[1], both[2])
    assert found.sum == pytest.approx(both.sum)


def test_pages_are_the_same() -> None:
    """Explicit buckets on the page do not depend on what OTLP wants."""
    page: Callable[[], bytes] = lambda: encode(  # noqa: E731 - twice the same
        [Family(TIMES, counted(VALUES["times"]).samples())]
    )
    with_exponential = page()
    exponential.ask(wanted=False)
    assert page() == with_exponential
    assert counted([1.0]).exponentials() == {}


def test_memory_is_bounded() -> None:
    """However far values are apart, at most 160 buckets are in use."""
    (found,) = counted([2.0**one for one in range(-1000, 1000)]).exponentials().values()
    assert len(found.counts) <= exponential.MAX_SIZE
    assert found.total == 2000
