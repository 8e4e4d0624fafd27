"""Statistics of one logged quantity."""

import random
from math import exp, inf, nan

import pytest

from jaxmon.facts.record import encoded
from jaxmon.indicators.values import Trend


def trend(*values: float) -> Trend:
    """Return the trend of *values*, logged in this order, one a second."""
    found = Trend()
    for number, value in enumerate(values):
        found.add(value, None, 100.0 + number)
    return found


def noisy(count: int, *, seed: int = 1) -> list[float]:
    """Return the values of a loss that falls, with the noise of batches."""
    drawn = random.Random(seed)  # noqa: S311 - nothing secret
    return [5 * exp(-n / 100) + 1 + drawn.gauss(0, 0.2) for n in range(count)]


def test_the_latest_finite_value_is_kept():
    """Values are numbered from 1 unless the program numbers them."""
    found = trend(3.0, 2.0)
    assert found.latest == (2, 2.0)

    found.add(1.0, 70, 0.0)

    assert found.latest == (70, 1.0)
    assert found.count == 3


def test_a_run_of_values_that_are_not_finite():
    """It has a beginning and a length, and ends with a finite value."""
    found = trend(2.0, nan, 1.5, inf, nan)

    assert (found.nonfinite, found.run) == (3, 2)
    assert found.latest == (3, 1.5)
    assert encoded(found.explain().since) == {"step": 4, "time": 103.0, "kind": "nan"}
    found.add(1.0, None, 0.0)
    assert (found.nonfinite, found.run, found.since) == (3, 0, None)


def test_a_spike_is_far_above_the_values_before_it():
    """It is counted once however long it lasts, with step and usual value."""
    values = noisy(300)
    found = trend(*values, 40.0, 41.0, 42.0, *values[-20:])

    assert found.spikes == 1
    spike = found.explain().spike
    assert spike is not None
    assert (spike.step, spike.value) == (301, 40.0)
    assert 1 < spike.usual < 2


@pytest.mark.parametrize(
    "values",
    [
        noisy(2000),
        [float(n) for n in range(500)],  # a learning rate that is warmed up
        [3.0] * 200,
        [0.0] * 50 + [1.0] * 5,
        [1.0, 100.0] * 100,
        [-n / 10 for n in range(300)],
        [9.0, 1.0, 80.0],  # too few to say what is usual
    ],
    ids=["loss", "ramp", "plateau", "first", "alternating", "negative", "few"],
)
def test_what_is_no_spike(values):
    """Noise, a ramp and a plateau are none, nor is what has no precedent."""
    assert trend(*values).spikes == 0


def test_the_best_is_that_of_several_values():
    """One lucky batch is no best value; the first ones say where it began."""
    found = trend(*[4.0] * 10, *[2.0] * 9, 0.001, *[3.0] * 50).explain()

    assert (found.first, found.best, found.floor) == (4.0, 2.0, 3.0)
    assert trend(*[4.0] * 10).explain().floor is None
