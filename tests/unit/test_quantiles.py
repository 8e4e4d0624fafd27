"""Quantiles that are estimated from counts and sum, against those of the values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf, nan

import pytest

from jaxmon.catalog import REQUEST_SECONDS, STEP_SECONDS
from jaxmon.exposition.families import Histogram
from jaxmon.exposition.quantiles import quantile


HALF, MOST, NEARLY_ALL = 0.5, 0.95, 0.99
_random = random.Random(7)  # noqa: S311 - no secret


def counted(bounds: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return how many of *values* are up to each bound, and how many there are."""
    found = [float(sum(value <= bound for value in values)) for bound in bounds]
    return [*found, float(len(values))]


def estimated(
    bounds: Sequence[float], values: Sequence[float], fraction: float
) -> float:
    """Return the estimate from what a histogram knows of *values*."""
    found = quantile(bounds, counted(bounds, values), sum(values), fraction)
    assert found is not None
    return found


def spread(bounds: Sequence[float], values: Sequence[float], fraction: float) -> float:
    """Return what Prometheus estimates: evenly spread in each bucket."""
    running = counted(bounds, values)
    rank, before, low = fraction * running[-1], 0.0, 0.0
    for bound, count in zip(bounds, running, strict=False):
        if count >= rank:
            return low + (bound - low) * (rank - before) / (count - before)
        before, low = count, bound
    return bounds[-1]


VALUES = {
    "alike": [_random.gauss(0.101, 0.002) for _ in range(600)],
    "alike, and long": [_random.gauss(0.29, 0.003) for _ in range(600)],
    "some outliers": [_random.gauss(0.101, 0.002) for _ in range(594)] + [2.0] * 6,
    "some are slow": [_random.gauss(0.101, 0.002) for _ in range(540)] + [0.25] * 60,
    "a little skewed": [_random.lognormvariate(-2.1, 0.3) for _ in range(600)],
    "skewed": [_random.lognormvariate(-2.1, 0.6) for _ in range(600)],
    "very skewed": [_random.lognormvariate(-3, 1) for _ in range(600)],
    "like arrivals": [_random.expovariate(12.5) for _ in range(600)],
    "evenly spread": [_random.uniform(0.1, 0.3) for _ in range(600)],
}


each_metric = pytest.mark.parametrize(
    "bounds", [STEP_SECONDS.buckets, REQUEST_SECONDS.buckets], ids=["steps", "requests"]
)
each_sample = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)


@each_metric
@each_sample
def test_the_median_is_close(bounds: tuple[float, ...], values: list[float]) -> None:
    """Whatever their distribution, unless they are at two places."""
    true = sorted(values)[len(values) // 2]
    assert estimated(bounds, values, HALF) == pytest.approx(true, rel=0.12)


@each_metric
@pytest.mark.parametrize("fraction", [HALF, MOST, NEARLY_ALL])
def test_the_sum_makes_estimates_better(
    bounds: tuple[float, ...], fraction: float
) -> None:
    """Over all samples, errors of medians are a third, those in the tails 3/4."""
    ours, theirs = 0.0, 0.0
    for values in VALUES.values():
        true = sorted(values)[int(len(values) * fraction)]
        ours += abs(estimated(bounds, values, fraction) / true - 1)
        theirs += abs(spread(bounds, values, fraction) / true - 1)
    assert ours < (0.3 if fraction == HALF else 0.75) * theirs


def test_evenly_spread_values_are_where_prometheus_has_them() -> None:
    """The sum adds nothing then."""
    values = [0.1 + 0.1 * (n + 0.5) / 1000 for n in range(1000)]
    for fraction in (0.1, HALF, MOST):
        found = estimated(STEP_SECONDS.buckets, values, fraction)
        assert found == pytest.approx(spread(STEP_SECONDS.buckets, values, fraction))


@each_sample
def test_estimates_rise_and_stay_in_their_bucket(values: list[float]) -> None:
    """As the values that they stand for do."""
    bounds = STEP_SECONDS.buckets
    every = sorted(values)
    before = 0.0
    for percent in range(1, 101):
        found = estimated(bounds, values, percent / 100)
        assert found >= before
        before = found
        true = every[-(-len(every) * percent // 100) - 1]
        high = next(bound for bound in bounds if bound >= true)
        assert (
            max([bound for bound in bounds if bound < high], default=0) <= found <= high
        )


def test_values_at_the_ends_of_buckets_are_there() -> None:
    """All of them at a bound, or just above the one below."""
    bounds = (1.0, 2.0, 4.0)
    assert estimated(bounds, [2.0] * 50, HALF) == pytest.approx(2.0, rel=0.01)
    assert estimated(bounds, [2.0001] * 50, HALF) == pytest.approx(2.0, rel=0.01)
    assert estimated(bounds, [2.0001] * 50, 1.0) == 4.0


@pytest.mark.parametrize(
    ("bounds", "running", "total", "expected"),
    [
        ((), (), 0.0, None),
        ((1.0, 2.0), (0, 0, 0), 0.0, None),
        # Some are above the last bound: how far, nobody knows.
        ((1.0, 2.0), (0, 8, 10), 500.0, 1.625),
        ((1.0, 2.0), (0, 0, 10), 500.0, 2.0),
        # The sum is lost, or of something else.
        ((1.0, 2.0), (0, 10, 10), 0.0, 1.5),
        ((1.0, 2.0), (0, 10, 10), 1e300, 1.5),
        ((1.0, 2.0), (0, 10, 10), inf, 1.5),
        ((1.0, 2.0), (0, 10, 10), nan, 1.5),
        # What no histogram should say.
        ((1.0, 1.0, 2.0), (0, 5, 10, 10), 14.0, 1.0),
        ((1.0, 2.0), (5, 3, 3), 90.0, 0.3),
    ],
)
def test_what_the_sum_does_not_show_is_spread_evenly(
    bounds: tuple[float, ...],
    running: tuple[float, ...],
    total: float,
    expected: float | None,
) -> None:
    """As Prometheus does."""
    assert quantile(bounds, running, total, HALF) == pytest.approx(expected)


def test_a_histogram_knows_its_sum() -> None:
    """What explanations and the page show of steps that are alike."""
    made = Histogram(STEP_SECONDS, "train")
    for _ in range(100):
        made.observe(0.101)
    assert made.quantile(HALF) == pytest.approx(0.101, rel=0.01)
    assert made.quantile(MOST) == pytest.approx(0.101, rel=0.03)
