"""Programs with products of matrices, whose FLOPs are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.transformer import ones


PRODUCT = 2 * 4 * 6 * 6


def product(x: Any) -> Any:
    return x @ ones(6, 6)


def looped(trips: int, x: Any) -> Any:
    import jax

    return jax.lax.fori_loop(0, trips, lambda _, y: product(y), x)


def nested(x: Any) -> Any:
    import jax

    return jax.lax.scan(lambda y, _: (looped(5, y), None), x, length=7)[0]


def counted_while(start: int, step: int, goes_on: Callable[[Any], Any], x: Any) -> Any:
    import jax

    return jax.lax.while_loop(
        lambda state: goes_on(state[0]),
        lambda state: (state[0] + step, product(state[1])),
        (start, x),
    )


def branches(x: Any, other: Callable[[Any], Any]) -> Any:
    import jax

    return jax.lax.cond(x[0, 0] > 0, product, other, x)


def until_large(x: Any) -> Any:
    import jax

    return jax.lax.while_loop(lambda y: y.sum() < 1e6, product, x)


def times_to(x: Any, number: Any) -> Any:
    import jax

    return jax.lax.fori_loop(0, number, lambda _, y: product(y), x)


def convolution(x: Any, kernel: Any, **options: Any) -> Any:
    import jax

    options = {"window_strides": (1, 1), "padding": "VALID", **options}
    return jax.lax.conv_general_dilated(x, kernel, **options)


def slopes_of_convolution(x: Any, kernel: Any) -> Any:
    import jax

    return jax.grad(lambda x, kernel: convolution(x, kernel).sum(), (0, 1))(x, kernel)


def mapped(x: Any) -> Any:
    import jax

    return jax.vmap(product)(x)


def ragged(x: Any, groups: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.lax.ragged_dot(x, groups, jnp.array([1, 3]))


def jitted_twice(x: Any) -> Any:
    import jax

    once = jax.jit(product)
    return once(once(x))


def with_rules(x: Any) -> Any:
    import jax

    fun = jax.custom_vjp(product)
    fun.defvjp(lambda x: (product(x), None), lambda _, slope: (product(slope),))
    return jax.grad(lambda x: fun(x).sum())(x)


def outside(x: Any) -> Any:
    import jax

    ffi = jax.ffi if hasattr(jax, "ffi") else jax.extend.ffi
    kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return ffi.ffi_call("a_library", kind)(x)


def factored(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.linalg.cholesky(x @ x.T)


CONVOLVED = 2 * 2 * 5 * 7 * 7 * 3 * 3 * 3
