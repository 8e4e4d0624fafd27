"""What goes wrong in the server while it has a fault, request by request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jaxmon
from jaxmon.demo.pace import Pace


FAULTS = (
    "cold",
    "errors",
    "freeze",
    "hang",
    "key-reuse",
    "latency",
    "leak",
    "nondeterminism",
    "oom",
    "recompile",
    "thunder",
    "vanish",
)
"""What the server may suffer from; some need nothing but signals or a restart."""

COMPARED_EVERY = CHECKED_EVERY = 10
KEPT_BYTES = 1 << 17
SLOW_SECONDS = 0.4
_MODEL_WIDTH = 8


class StoreDownError(ConnectionError):
    """The store with the users' contexts does not respond."""


class Mishaps:
    """The faults of the server; *pace* says which one is active."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._kept: list[jax.Array] = []

    def befall(self, tick: int, tokens: list[int]) -> None:
        """
        Do to the request of this *tick* what the active fault does.

        Raises:
            StoreDownError: the store is down.
        """
        suffers = self._pace.suffers
        load_context(
            store_down=suffers("errors") and tick % 2 == 1, slow=suffers("latency")
        )
        while suffers("hang"):
            time.sleep(0.1)
        if suffers("cold"):
            new_model(tick)(np.ones(_MODEL_WIDTH, np.float32))
        if suffers("leak"):
            self._kept.append(jnp.zeros(KEPT_BYTES // 4, jnp.float32))
        else:
            self._kept.clear()
        if suffers("oom") and tick % COMPARED_EVERY == 0:
            find_similar(tokens)
        if suffers("key-reuse") and tick % CHECKED_EVERY == 0:
            draw_twice()
        if suffers("nondeterminism") and tick % CHECKED_EVERY == 0:
            jaxmon.check_determinism(jitter, np.ones(_MODEL_WIDTH, np.float32))


def load_context(*, store_down: bool, slow: bool) -> None:
    """
    Simulate a call of the store.

    Raises:
        StoreDownError: it is down.
    """
    if store_down:
        msg = "the context store does not respond"
        raise StoreDownError(msg)
    if slow:
        time.sleep(SLOW_SECONDS)


def new_model(number: int) -> Callable[[np.ndarray], jax.Array]:
    """Return a model that no request has used before: another function each time."""

    def model(x: jax.typing.ArrayLike) -> jax.Array:
        return jnp.tanh(x * number).sum()

    model.__name__ = model.__qualname__ = f"model_{number}"
    compiled: Callable[[np.ndarray], jax.Array] = jax.jit(model)
    return compiled


@jax.jit
def compare_with_all(tokens: jax.Array) -> jax.Array:
    """Return a score for each pair of requests ever made, at four bytes each."""
    return jnp.zeros((1 << 25, 1 << 28), jnp.float32).at[0, 0].set(tokens.sum())


def find_similar(tokens: list[int]) -> jax.Array | None:
    """Return how similar requests are, or `None` where memory does not suffice."""
    try:
        return compare_with_all(np.asarray(tokens, np.int32)[:1]).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print(f"no comparison: {error}", file=sys.stderr)
        return None


@jax.jit
def sample_twice(key: jax.Array) -> jax.Array:
    """Return two samples, which are not independent."""
    return jax.random.normal(key) + jax.random.uniform(key)


def draw_twice() -> None:
    """Sample with JAX's key checker, as a canary would, and without it."""
    key = jax.random.key(0)
    try:
        with jax.debug_key_reuse(True):  # noqa: FBT003 - JAX's own
            sample_twice(key)
    except jax.errors.KeyReuseError as error:
        print(f"no samples: {error}", file=sys.stderr)


@jax.jit
def jitter(x: jax.Array) -> jax.Array:
    """Return *x*, with noise that does not come from a key."""
    noise = jax.pure_callback(_noise, jax.ShapeDtypeStruct(x.shape, x.dtype))
    return x + noise


def _noise() -> np.ndarray:
    return np.random.default_rng().random(_MODEL_WIDTH, np.float32)
