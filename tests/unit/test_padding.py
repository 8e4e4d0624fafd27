"""Padding in arguments: what rows of tokens end with."""

import numpy as np
import pytest

from jaxmon.agent.checks.padding import padded


RNG = np.random.default_rng(0)
TOKENS = RNG.integers(1, 1000, (16, 512))


def cut(lengths, value=0, rows=TOKENS):
    """Return *rows* of which only so many elements are not padding."""
    at = np.arange(rows.shape[1])
    return np.where(at < np.asarray(lengths)[:, None], rows, value)


@pytest.mark.parametrize("value", [0, -1])
def test_padding_is_counted(value):
    """Also if some rows have none, or are nothing else."""
    lengths = RNG.integers(20, 200, 16)
    assert padded(cut(lengths, value)) == pytest.approx(1 - lengths.mean() / 512)
    lengths[0], lengths[1] = 512, 0
    assert padded(cut(lengths, value)) == pytest.approx(1 - lengths.mean() / 512)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((16, 512), int),
        np.eye(64, dtype=int),
        RNG.poisson(0.05, (16, 512)),
        cut(RNG.integers(20, 200, 16))[:, :16],
        TOKENS[0],
        np.zeros((0, 512), int),
    ],
)
def test_what_may_be_data_is_no_padding(array):
    """Nothing but one value, one-hot vectors, rare counts, short rows, one row."""
    assert padded(array) == 0.0


def test_without_padding_there_is_hardly_any():
    """Tokens that happen to end alike."""
    assert padded(TOKENS) < 0.01
