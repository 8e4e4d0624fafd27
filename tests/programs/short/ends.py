"""
Short programs that hold NaN when they end, by name; the healthy ones as they should.

A program ends within a second, and the last call that returned NaN is its last.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp


WORDS = (r"returns NaN: (its )?output .*was finite in call", "when it ended")

STEPS, LAST = 150, 149
weights, batch = jnp.ones((64, 64)) * 0.01, jnp.ones((64, 64))


def loss_of(weights: Any, batch: Any) -> Any:
    return jnp.mean((batch @ weights) ** 2)


@jax.jit  # type: ignore[untyped-decorator]
def step(weights: Any, batch: Any, scale: Any) -> Any:
    loss = loss_of(weights, batch) * scale
    return weights - 1e-3 * loss, loss


@jax.jit  # type: ignore[untyped-decorator]
def guarded(weights: Any, batch: Any, scale: Any) -> Any:
    """Skip a step whose loss overflows, as dynamic loss scaling does."""
    loss = loss_of(weights, batch) * scale
    return jnp.where(jnp.isfinite(loss), weights - 1e-3 * loss, weights), loss


@jax.jit  # type: ignore[untyped-decorator]
def gradients(weights: Any, batch: Any, scale: Any) -> Any:
    loss = loss_of(weights, batch) * scale
    return loss, weights * loss


@jax.jit  # type: ignore[untyped-decorator]
def update(weights: Any, slope: Any) -> Any:
    return jnp.where(jnp.isfinite(slope), weights - 1e-3 * slope, weights)


@jax.jit  # type: ignore[untyped-decorator]
def evaluate(weights: Any, batch: Any, scale: Any) -> Any:
    return loss_of(weights, batch) * scale


def scales(first: int, last: int = STEPS) -> Iterator[float]:
    """Yield factors, which are NaN from *first* to *last*; a step takes a moment."""
    for number in range(STEPS):
        yield float("nan") if first <= number < last else 1.0
        time.sleep(0.002)


def last_step() -> Any:
    state, loss = weights, None
    for scale in scales(LAST):
        state, loss = step(state, batch, scale)  # fault
    return state, loss


def last_losses() -> Any:
    return [evaluate(weights, batch, scale) for scale in scales(LAST - 1)]  # fault


def skipped_step() -> Any:
    state, loss = weights, None
    for scale in scales(LAST):
        state, loss = guarded(state, batch, scale)
    return state, loss


def skipped_update() -> Any:
    state, loss, slope = weights, None, None
    for scale in scales(LAST):
        loss, slope = gradients(state, batch, scale)
        state = update(state, slope)
    return state, loss, slope


def one_bad_batch() -> Any:
    return [evaluate(weights, batch, scale) for scale in scales(LAST)]


def placeholder() -> Any:
    """Return what the first call had, before there was any data."""
    return [evaluate(weights, batch, scale) for scale in scales(0, 1)][:1]


def finite() -> Any:
    return [step(weights, batch, scale) for scale in scales(STEPS)]


held = globals()[sys.argv[1]]()
jax.block_until_ready(held)
