"""What is no recompile."""

from __future__ import annotations

import contextlib
import threading
from fractions import Fraction

import jax
import numpy as np

from tests.programs.recompiles.cases import (
    CASES,
    Again,
    array,
    case,
    leaves_plus_one,
    mesh,
    plus_one,
    spread,
    static,
)


@case
def numpy_in_place_of_jax() -> Again:
    @jax.jit
    def f(batch):
        return batch["x"] + 1

    f({"x": array(3)})

    def again() -> object:
        for _ in range(3):
            f({"x": np.zeros(3, np.float32)})
        return None

    return again


@case
def effects() -> Again:
    @jax.jit
    def f(x):
        jax.debug.callback(lambda: None, ordered=True)
        return x

    x = array(3)
    f(x)

    def again() -> object:
        for _ in range(100):
            f(x)
        return jax.effects_barrier()

    return again


@case
def ahead_of_time() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(3))
    return lambda: f.lower(array(4)).compile()


@case
def transformed() -> Again:
    @jax.jit
    def f(x):
        return x.sum()

    f(array(3))
    x = array(5)
    return lambda: jax.grad(f)(x)


@case
def first_call() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    return lambda: f(array(3))


@case
def names_in_another_order() -> Again:
    @jax.jit
    def f(**given):
        return given["a"] + given["b"]

    f(a=array(3), b=array(3))
    return lambda: f(b=array(3), a=array(3))


@case
def jitted_twice() -> Again:
    def f(x):
        return x + 1

    jax.jit(f)(array(3))
    return lambda: jax.jit(f)(array(3))


@case
def two_lambdas_of_one_line() -> Again:
    one, two = jax.jit(lambda x: x + 1), jax.jit(lambda x: x * 2)
    one(array(3))
    return lambda: two(array(3))


@case
def gradients_of_two_functions() -> Again:
    def one(x):
        return (x * x).sum()

    def two(x):
        return (x * x * x).sum()

    jax.jit(jax.grad(one))(array(3))
    return lambda: jax.jit(jax.grad(two))(array(3))


@case
def called_as_compiled_ahead_of_time() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f.lower(array(3)).compile()
    return lambda: f(array(3))


@case
def exported() -> Again:
    from jax import export

    @jax.jit
    def f(x):
        return x + 1

    f(array(3))
    return lambda: export.export(f)(array(4))


@case
def mapped() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(3))
    return lambda: jax.vmap(f)(array(4, 3))


@case
def pmapped_twice() -> Again:
    def f(x):
        return x + 1

    jax.pmap(f)(np.ones((8, 2), np.float32))
    return lambda: jax.pmap(f)(np.ones((8, 2), np.float32))


@case
def refused() -> Again:
    @jax.jit
    def f(x):
        if x.shape == (4,):
            raise ValueError
        return x + 1

    def again() -> None:
        with contextlib.suppress(ValueError):
            f(array(4))

    f(array(3))
    return again


@case
def called_at_once() -> Again:
    f = jax.jit(lambda x: x @ x)

    def again() -> None:
        threads = [threading.Thread(target=f, args=(array(9, 9),)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return again


CASES.update(
    dict_in_another_order=lambda: leaves_plus_one(
        {"a": array(1), "b": array(1)}, {"b": array(1), "a": array(1)}
    ),
    equal_static_value=lambda: static(Fraction(1, 2), Fraction(2, 4)),
    equal_mesh=lambda: plus_one(spread("d"), spread("d", over=mesh())),
)
