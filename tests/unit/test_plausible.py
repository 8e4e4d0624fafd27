"""Figures that cannot be true."""

import logging
from decimal import Decimal
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from jaxmon.catalog import (
    ACCELERATOR_INFO,
    ACCELERATOR_POWER_WATTS,
    ACCELERATOR_TEMPERATURE_CELSIUS,
    ACCELERATOR_UTILIZATION_RATIO,
    GPU_ECC_ERRORS,
    HOST_CPU_SECONDS,
    QUEUE_DEPTH,
    TPU_COLLECTIVE_SECONDS,
    Metric,
)
from jaxmon.exposition.families import Family, Histogram, Sample
from jaxmon.exposition.plausible import PlausibilityFilter


log = logging.getLogger("jaxmon.test")


def sieved(metric: Metric, *values: Any) -> tuple[list[Any], int]:
    """Return which of *values* pass, and how many were dropped."""
    sieve = PlausibilityFilter(log, "it")
    samples: list[Sample] = [(str(place), one) for place, one in enumerate(values)]
    (family,) = sieve.sift([Family(metric, samples)])
    return [value for _, value in family.samples], sieve.dropped


@pytest.mark.parametrize(
    ("metric", "good", "bad"),
    [
        (ACCELERATOR_UTILIZATION_RATIO, (0, 0.5, 1, True), (-0.1, 1.02, 42949672.0)),
        (ACCELERATOR_TEMPERATURE_CELSIUS, (-5, 0, 40, 110), (-274, 4294967295, inf)),
        (ACCELERATOR_POWER_WATTS, (0, 700.5), (-1, 2**32 / 1000, -inf)),
        (GPU_ECC_ERRORS, (0, 1, 10**15), (-1, 2**64 - 1)),
        (HOST_CPU_SECONDS, (0, 1e12), (-0.001,)),
        (ACCELERATOR_INFO, (1, 1.0), (0, 2)),
        # Whatever a program counts may be any number.
        (QUEUE_DEPTH, (-5, 0, 1e300, inf), ()),
    ],
    ids=lambda value: value.name if isinstance(value, Metric) else "",
)
def test_what_is_out_of_range_is_dropped_and_counted(metric, good, bad):
    """The rest of the family stays as it is, in order."""
    assert sieved(metric, *good) == ([*good], 0)
    assert sieved(metric, *bad, *good, nan) == ([*good], len(bad) + 1)


@pytest.mark.parametrize(
    "value", ["12", None, b"1", [1], {}, 1j, np.zeros(2)], ids=repr
)
def test_what_is_no_number_is_dropped(value: object) -> None:
    """Whatever a library returns, it costs itself alone."""
    assert sieved(QUEUE_DEPTH, 1, value, 2) == ([1, 2], 1)


def test_numbers_of_others_are_numbers() -> None:
    """NumPy's, and those of the standard library."""
    values = [np.float32(1.5), np.int64(3), Decimal("2.5")]
    assert sieved(QUEUE_DEPTH, *values) == (values, 0)


def test_full_is_at_times_a_little_more() -> None:
    """Two counters of one share are not read at the same moment."""
    assert sieved(ACCELERATOR_UTILIZATION_RATIO, 1.009) == ([1.0], 0)


def test_a_histogram_is_whole_or_not_there() -> None:
    """Without one of its numbers it would say something else."""
    histogram = Histogram(TPU_COLLECTIVE_SECONDS, "0")
    histogram.observe(0.5)
    samples = histogram.samples()
    good = Family(TPU_COLLECTIVE_SECONDS, samples)
    bad = Family(TPU_COLLECTIVE_SECONDS, [*samples[:-1], (samples[-1][0], -1)])
    sieve = PlausibilityFilter(log, "it")

    assert sieve.sift([good, bad]) == [good, Family(TPU_COLLECTIVE_SECONDS, [])]
    assert sieve.dropped == len(samples)
