"""Other dtypes and weak types."""

from __future__ import annotations

import jax
import numpy as np

from tests.programs.recompiles.cases import CASES, Again, array, case, plus_one, twice


@case
def dtype_bfloat16() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    half = array(3, dtype=jax.numpy.bfloat16)
    f(array(3))
    return lambda: f(half)


@case
def dtype_of_keys() -> Again:
    @jax.jit
    def f(key):
        return jax.random.uniform(key)

    old, new = jax.random.PRNGKey(0), jax.random.key(0)
    f(old)
    return lambda: f(new)


@case
def dtype_of_keys_of_another_kind() -> Again:
    @jax.jit
    def f(key):
        return jax.random.uniform(key)

    old, new = jax.random.key(0), jax.random.key(0, impl="rbg")
    f(old)
    return lambda: f(new)


CASES.update(
    dtype=lambda: plus_one(array(3), array(3, dtype=np.int32)),
    dtype_and_shape=lambda: plus_one(array(3), array(4, dtype=np.int32)),
    dtype_of_python_numbers=lambda: plus_one(1, 1.5),
    dtype_and_weak_type=lambda: plus_one(1, np.float32(1)),
    weak_type=lambda: plus_one(1.0, np.float32(1)),
    weak_type_now=lambda: twice(
        lambda x, rate: x * rate, (array(3), array(dtype=np.int32)), (array(3), 2)
    ),
    dtype_of_truth=lambda: plus_one(before=True, after=1),
    dtype_of_complex_numbers=lambda: plus_one(1.0, 1j),
    weak_type_of_a_number_of_numpy=lambda: plus_one(1.0, np.float64(1)),
)
