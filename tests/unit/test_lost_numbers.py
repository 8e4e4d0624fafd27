"""Which numbers of states are lost: weights that do not move, and counts that wrap."""

from itertools import accumulate, pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jaxmon.agent.checks.states import CountHistory, NarrowState
from tests.helpers.processes import each


RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(scale=0.1, size=8192)


def narrow(update: float, least: float = 0.0, samples: int = 5, every: int = 40) -> Any:
    """Return what is lost of weights that become larger by *update* in each sample."""
    history, weights = NarrowState(), WEIGHTS[np.abs(WEIGHTS) >= least]
    weights = weights.astype(ml_dtypes.bfloat16)
    for number in range(samples):
        history.add(weights, 1 + number * every)
        weights = weights + np.asarray(update, ml_dtypes.bfloat16)
    return history.explain()


def test_updates_below_half_the_spacing_are_lost():
    """From the power of two on where they are."""
    lost = narrow(1e-4)

    assert (lost.dtype, lost.least, lost.samples) == ("bfloat16", 0.0625, 5)
    assert lost.fraction == pytest.approx(np.mean(np.abs(WEIGHTS) >= 0.0625), abs=0.01)


@pytest.mark.parametrize(
    "samples",
    [
        {"update": 0.02},
        {"update": 0.0},
        {"update": 1e-9},
        {"update": 1e-4, "least": 0.05},
        {"update": 1e-4, "samples": 2},
        {"update": 1e-4, "every": 20},
    ],
    ids=["large", "none", "tiny", "none that moves", "few samples", "few calls"],
)
def test_updates_are_not_said_to_be_lost(samples):
    """All or no elements move, or hardly any; or it is too early."""
    assert narrow(**samples) is None


def count(grown: list[int], first: int = 2_000_000_000, kind: type = np.int32) -> Any:
    """Return whether a count wrapped that has *grown* so from sample to sample."""
    history = CountHistory()
    for call, number in enumerate(accumulate([first, *grown]), 1):
        history.add(np.asarray(number).astype(kind), call * 10)
    return history.explain()


EVEN, UNEVEN = [10**8] * 4, [10**8, 9 * 10**7, 8 * 10**7, 10**8, 7 * 10**7, 10**8]


def test_a_count_that_becomes_negative_wraps():
    """Three samples show an even one, seven another; the calls around it are known."""
    lost = count(EVEN)

    assert (lost.dtype, lost.finite_call, lost.call) == ("int32", 20, 30)
    assert lost.finite_value == 2_100_000_000
    assert count(EVEN[:1]) is None
    assert count(UNEVEN[:4]) is None
    assert count(UNEVEN).call == 30
    assert count(EVEN, kind=np.int64) is None


@each({str(seed): (seed,) for seed in range(200)})
def test_hashes_do_not_count(seed):
    """Nor does a count that is set back, or goes down."""
    numbers = np.random.default_rng(seed).integers(-(2**31), 2**31, 40)

    assert count([int(b - a) for a, b in pairwise(numbers)], int(numbers[0])) is None
    assert count([10**8, -(2**31) + 5, 10**8, 10**8]) is None
    assert count([-(10**8)] * 9, -2_000_000_000) is None
