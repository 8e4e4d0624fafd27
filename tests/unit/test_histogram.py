"""The histogram with ready-made series."""

import math
from concurrent.futures import ThreadPoolExecutor

from jaxmon.catalog import Metric
from jaxmon.exposition.families import Histogram


PLAIN = Metric("t_seconds", "histogram", "Time.", unit="seconds", buckets=(0.1, 1))
LABELLED = Metric(
    "t_seconds", "histogram", "Time.", labels=("function",), buckets=(0.1, 1)
)


def test_buckets_are_cumulative_and_include_their_bound() -> None:
    """An observation counts in its bucket and all above; a bound is inside."""
    histogram = Histogram(PLAIN)
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(value)

    assert histogram.samples() == [
        ('t_seconds_bucket{le="0.1"}', 2),
        ('t_seconds_bucket{le="1.0"}', 4),
        ('t_seconds_bucket{le="+Inf"}', 5),
        ("t_seconds_sum", 8.65),
        ("t_seconds_count", 5),
    ]
    assert (histogram.count, histogram.sum) == (5, 8.65)


def test_labels_stand_before_the_bound() -> None:
    """Every series of the family bears the labels, escaped."""
    names = [name for name, _ in Histogram(LABELLED, 'a"b').samples()]

    assert names == [
        't_seconds_bucket{function="a\\"b",le="0.1"}',
        't_seconds_bucket{function="a\\"b",le="1.0"}',
        't_seconds_bucket{function="a\\"b",le="+Inf"}',
        't_seconds_sum{function="a\\"b"}',
        't_seconds_count{function="a\\"b"}',
    ]


def test_new_histogram_shows_zeros() -> None:
    """A series starts at 0, so that the first increase is visible to rate()."""
    assert {value for _, value in Histogram(PLAIN).samples()} == {0}


def test_what_no_clock_should_tell_spoils_no_sum() -> None:
    """Below 0 counts as 0; what is no finite number is not counted."""
    histogram = Histogram(PLAIN)
    for value in (-3.0, -math.inf, math.nan, math.inf, 0.5):
        histogram.observe(value)

    assert (histogram.count, histogram.sum) == (3, 0.5)


def test_no_observation_of_concurrent_threads_is_lost() -> None:
    """Threads may observe at the same time."""
    histogram = Histogram(PLAIN)

    def observe() -> None:
        for _ in range(5000):
            histogram.observe(0.5)

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(observe) for _ in range(8)]:
            future.result()

    assert (histogram.count, histogram.sum) == (40_000, 20_000.0)
