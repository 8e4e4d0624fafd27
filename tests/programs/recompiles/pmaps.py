"""Other calls of pmap."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from tests.programs.recompiles.cases import CASES, DEVICES, Again, case


@case
def pmap_shape() -> Again:
    @jax.pmap
    def f(x, batch):
        return x + batch["y"]

    f(np.ones((8, 1), np.float32), {"y": np.ones((8, 2), np.float32)})
    return lambda: f(np.ones((8, 1), np.float32), {"y": np.ones((8, 3), np.float32)})


@case
def pmap_static() -> Again:
    @functools.partial(jax.pmap, static_broadcasted_argnums=1)
    def f(x, n):
        return x * n

    f(np.ones((8, 1), np.float32), 2)
    return lambda: f(np.ones((8, 1), np.float32), 3)


def pmapped_with(before: dict[str, Any], after: dict[str, Any]) -> Again:
    """Call a function that is pmapped with *before*, and pmapped again with *after*."""

    def f(x):
        return x + 1

    jax.pmap(f, **before)(np.ones((2, 2), np.float32))
    return lambda: jax.pmap(f, **after)(np.ones((2, 2), np.float32))


@case
def pmapped_then_jitted() -> Again:
    def f(x):
        return x + 1

    jax.pmap(f)(np.ones((8, 2), np.float32))
    return lambda: jax.jit(f)(np.ones((8, 2), np.float32))


@case
def jitted_then_pmapped() -> Again:
    def f(x):
        return x + 1

    jax.jit(f, donate_argnums=0)(np.ones((8, 2), np.float32))
    return lambda: jax.pmap(f)(np.ones((8, 2), np.float32))


CASES.update(
    pmap_axis_name=lambda: pmapped_with({}, {"axis_name": "i"}),
    pmap_another_axis=lambda: pmapped_with({}, {"in_axes": 1}),
    pmap_devices=lambda: pmapped_with(
        {"devices": tuple(DEVICES[:2])}, {"devices": tuple(DEVICES[2:4])}
    ),
    pmap_donated=lambda: pmapped_with({}, {"donate_argnums": 0}),
    pmap_another_axis_out=lambda: pmapped_with({}, {"out_axes": 1}),
)
