"""Padding in arguments: what rows of tokens end with."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from jaxmon.agent.checks.padding import Padding, padded
from jaxmon.agent.context import Sample


RNG = np.random.default_rng(0)
TOKENS = RNG.integers(1, 1000, (16, 512))


def cut(lengths, value=0, rows=TOKENS):
    """Return *rows* of which only so many elements are not padding."""
    at = np.arange(rows.shape[1])
    return np.where(at < np.asarray(lengths)[:, None], rows, value)


@pytest.mark.parametrize("value", [0, -1])
def test_padding_is_counted(value):
    """Also if some rows have none; those that are nothing else fill up the batch."""
    lengths = RNG.integers(20, 200, 16)
    assert padded(cut(lengths, value)) == pytest.approx(1 - lengths.mean() / 512)
    lengths[0], lengths[1:9] = 512, 0
    expected = 1 - lengths[lengths > 0].mean() / 512
    assert padded(cut(lengths, value)) == pytest.approx(expected)


POSITIONS = np.arange(512)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((16, 512), int),
        np.eye(64, dtype=int),
        RNG.poisson(0.05, (16, 512)),
        np.tril(np.ones((512, 512), int)),  # a mask
        cut(RNG.integers(20, 200, 16), rows=np.ones((16, 512), int)),  # of segments
        np.minimum(POSITIONS, 63) + np.zeros((16, 1), int),  # buckets of positions
        np.clip(POSITIONS - POSITIONS[:, None], -40, 40),
    ],
)
def test_what_may_be_data_is_no_padding(array):
    """One value, one-hot vectors, rare counts, masks, segments, positions."""
    assert padded(array) == 0.0


def test_without_padding_there_is_hardly_any():
    """Tokens that happen to end alike."""
    assert padded(TOKENS) < 0.01


LENGTHS = RNG.integers(20, 200, (8, 16))


def judged(given, *, static=False, again=False):
    """Return what is found of a function with a static argument, or the same again."""
    context: Any = SimpleNamespace(jax=jax)
    padding = Padding(context)

    @partial(jax.jit, static_argnums=0)
    def model(layers, tokens, scale):
        return tokens.sum() * scale

    args = (2, given(0), 1.0) if static else (given(0), 1.0)
    jitted = model if static else jax.jit(lambda tokens, scale: tokens.sum() * scale)
    jaxpr = jitted.trace(*args).jaxpr.jaxpr
    parts = {"internal": False, "whole": lambda _: jaxpr}
    function: Any = type("Function", (), parts)()
    for at in range(6):
        args = (*args[:-2], given(0 if again else at), 1.0)
        padding.sampled(Sample(function, jitted, args, {}, None))
    return padding.all().get(function)


def test_padding_of_samples():
    """By the name; not a batch that comes again, of pixels, or of unknown arguments."""

    def batch(at):
        tokens = np.random.default_rng(at).integers(1, 1000, (16, 512))
        return cut(LENGTHS[at], rows=tokens)

    found = judged(batch)
    assert found is not None
    assert (found.argument, found.samples) == ("tokens", 6)
    assert found.ratio == pytest.approx(1 - LENGTHS[:6].mean() / 512)
    assert judged(batch, again=True) is None
    assert judged(lambda at: batch(at).astype(np.uint8)) is None
    assert judged(batch, static=True) is None
