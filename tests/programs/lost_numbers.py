"""
States whose numbers are lost, and those that only look like it: all are updated in
turn for some seconds. ``lost`` or ``kept`` chooses which.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax


Step = Callable[[Any], Any]
HALF = jnp.bfloat16
RATE = 1e-4
tx = optax.adam(RATE)
key = jax.random.key(0)
weights = 0.1 * jax.random.normal(key, (64, 128))
narrow = weights.astype(HALF)
noise = jnp.sign(weights)


def gradient(number: Any) -> Any:
    return jax.random.normal(jax.random.fold_in(key, number), weights.shape)


# --- lost ----------------------------------------------------------------------------


def bfloat16_weights(state: Any) -> Any:
    weights, moments, number = state
    updates, moments = tx.update(gradient(number).astype(HALF), moments)
    return weights + updates, moments, number + 1.0  # lost: bfloat16_weights


def float16_sgd(state: Any) -> Any:
    weights, number = state
    step = 5e-6 * gradient(number)
    return weights - step.astype(jnp.float16), number + 1.0  # lost: float16_sgd


def tokens_in_steps(state: Any) -> Any:
    return {"tokens": state["tokens"] + 2**20}  # lost: tokens_in_steps


def tokens_in_batches(state: Any) -> Any:
    tokens, number = state
    fresh = jax.random.randint(jax.random.fold_in(key, number), (), 2**19, 2**20)
    return tokens + fresh, number + 1.0  # lost: tokens_in_batches


# --- kept ----------------------------------------------------------------------------


def master_weights(state: Any) -> Any:
    weights, moments, number = state
    slope = gradient(number) * weights.astype(HALF)
    updates, moments = tx.update(slope.astype(jnp.float32), moments)
    return weights + updates, moments, number + 1.0


def frozen_layers(state: Any) -> Any:
    frozen, trained, number = state
    return frozen, trained - 0.1 * gradient(number), number + 1.0


def fast_bfloat16(state: Any) -> Any:
    weights, number = state
    return weights - (0.05 * gradient(number)).astype(HALF), number + 1.0


def converged(state: Any) -> Any:
    weights, number = state
    return weights - (1e-8 * gradient(number)).astype(HALF), number + 1.0


def clipped(state: Any) -> Any:
    weights, number = state
    moved = weights + (0.02 * noise + 0.01 * gradient(number)).astype(HALF)
    return jnp.clip(moved, -0.1, 0.1), number + 1.0


def kept_keys(state: Any) -> Any:
    """Fill a cache row by row, as generation does, and begin again."""
    rows, number = state
    at = (number % 64).astype(jnp.int32)
    fresh = gradient(number)[0].astype(HALF)
    return jnp.where(at == 0, 0, rows).at[at].set(fresh), number + 1.0


def stochastic(state: Any) -> Any:
    """Round at random, so that no update is lost in the mean."""
    weights, number = state
    moved = weights.astype(jnp.float32) + 1e-3 * noise * (number % 2 - 0.4)
    bits = jax.lax.bitcast_convert_type(moved, jnp.uint32)
    drawn = jax.random.bits(jax.random.fold_in(key, number), bits.shape) >> 16
    rounded = jax.lax.bitcast_convert_type(
        (bits + drawn) & jnp.uint32(0xFFFF0000), jnp.float32
    )
    return rounded.astype(HALF), number + 1.0


def reset_count(state: Any) -> Any:
    return jnp.where(state > 2**31 - 2**24, 0, state + 2**20)


def hashed(state: Any) -> Any:
    return state * 1103515245 + 12345


def golden(state: Any) -> Any:
    return state - 1640531527


def unsigned(state: Any) -> Any:
    return state + jnp.uint32(2**24)


def in_a_ring(state: Any) -> Any:
    return (state + 1) % 100


NEAR = jnp.int32(2**31 - 2**27)
ZERO = jnp.float32(0)
CASES: dict[str, dict[Step, Any]] = {
    "lost": {
        bfloat16_weights: (narrow, tx.init(narrow), ZERO),
        float16_sgd: (weights.astype(jnp.float16), ZERO),
        tokens_in_steps: {"tokens": NEAR},
        tokens_in_batches: (NEAR, ZERO),
    },
    "kept": {
        master_weights: (weights, tx.init(weights), ZERO),
        frozen_layers: (narrow, weights, ZERO),
        fast_bfloat16: (narrow, ZERO),
        converged: (narrow, ZERO),
        clipped: (narrow, ZERO),
        kept_keys: (narrow, ZERO),
        stochastic: (narrow, ZERO),
        reset_count: NEAR,
        hashed: jnp.int32(1),
        golden: jnp.int32(1),
        unsigned: jnp.uint32(2**32 - 2**29),
        in_a_ring: jnp.int8(0),
    },
}


def update(states: dict[Step, Any]) -> None:
    for step, state in states.items():
        states[step] = jax.block_until_ready(step(state))


def main() -> None:
    """Update the states of a set for so many seconds, however busy the machine."""
    states = {jax.jit(step): state for step, state in CASES[sys.argv[1]].items()}
    update(states)
    seconds, updates = float(sys.argv[2]), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end or updates < 50 * seconds:
        update(states)
        updates += 1
        time.sleep(0.01)


if __name__ == "__main__":
    main()
