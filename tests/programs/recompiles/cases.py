"""What cases are made of, and where they are registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


NamedSharding = jax.sharding.NamedSharding
P = jax.sharding.PartitionSpec
Again = Callable[[], object]

CASES: dict[str, Callable[[], Again]] = {}
DEVICES = jax.devices()


def case(prepare: Callable[[], Again]) -> Callable[[], Again]:
    """
    Register a case: *prepare* makes the first calls and returns the one to look at.

    With an `AttributeError` it says that this JAX has not got what it is about.
    """
    CASES[prepare.__name__] = prepare
    return prepare


def array(*shape: int, dtype: Any = np.float32) -> Any:
    """Return an array that is committed to no device."""
    return jax.device_put(np.zeros(shape, dtype))


def on(device: int, *shape: int) -> Any:
    return jax.device_put(np.zeros(shape, np.float32), DEVICES[device])


def mesh(axes: tuple[str, ...] = ("d",), shape: Any = (8,), **options: Any) -> Any:
    return jax.sharding.Mesh(np.array(DEVICES).reshape(shape), axes, **options)


def spread(*spec: Any, over: Any = None) -> Any:
    over = mesh() if over is None else over
    return jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(over, P(*spec)))


def another_memory() -> str:
    """Return a kind of memory that is not the default of the devices."""
    default = DEVICES[0].default_memory().kind
    for memory in DEVICES[0].addressable_memories():
        if memory.kind == "unpinned_host" != default:
            return str(memory.kind)
    raise AttributeError


def scaled(factor: int, x: Any) -> Any:
    return x * factor


def twice(
    fun: Any, before: tuple[Any, ...], after: tuple[Any, ...], **options: Any
) -> Again:
    """Call *fun*, jitted, with the arguments *before*, and again with *after*."""
    f = jax.jit(fun, **options)
    f(*before)
    return lambda: f(*after)


def plus_one(before: Any, after: Any, **options: Any) -> Again:
    return twice(lambda x: x + 1, (before,), (after,), **options)


def leaves_plus_one(before: Any, after: Any) -> Again:
    def f(x):
        return [leaf + 1 for leaf in jax.tree_util.tree_leaves(x)]

    return twice(f, (before,), (after,))


def static(before: Any, after: Any) -> Again:
    """Call a function with *before* as a static argument, and again with *after*."""
    x = array(3)
    return twice(lambda s, x: (x, s is None), (before, x), (after, x), static_argnums=0)


def each(call: Again) -> Again:
    """Call *call*, which makes its function anew, and again."""
    call()
    return call
