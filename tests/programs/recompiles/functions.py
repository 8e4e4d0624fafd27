"""Functions made again, and programs dropped."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from tests.programs.recompiles.cases import Again, array, case, scaled
from tests.programs.recompiles.classes import Model


@case
def new_lambda() -> Again:
    def call() -> object:
        return jax.jit(lambda x: x * 2)(array(3))

    call()
    return call


@case
def new_lambda_and_a_shape() -> Again:
    def call(size: int) -> object:
        return jax.jit(lambda x: x * 2)(array(size))

    call(3)
    return lambda: call(4)


@case
def new_partial() -> Again:
    def call() -> object:
        return jax.jit(functools.partial(scaled, 2))(array(3))

    call()
    return call


@case
def new_closure() -> Again:
    def make(factor: int) -> Any:
        @jax.jit
        def step(x):
            return x * factor

        return step

    make(2)(array(3))
    return lambda: make(2)(array(3))


@case
def jit_inside_a_method() -> Again:
    model = Model(2)
    model.jits_inside(array(3))
    return lambda: model.jits_inside(array(3))


@case
def new_bound_method() -> Again:
    jax.jit(Model(2).plain)(array(3))
    return lambda: jax.jit(Model(3).plain)(array(3))


@case
def new_pmapped_lambda() -> Again:
    def call() -> object:
        return jax.pmap(lambda x: x * 2)(np.ones((8, 3), np.float32))

    call()
    return call


@case
def caches_cleared() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    x = array(3)
    f(x)

    def again() -> object:
        jax.clear_caches()
        return f(x)

    return again


@case
def function_cleared() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    x = array(3)
    f(x)

    def again() -> object:
        f.clear_cache()
        return f(x)

    return again


def squares(x: Any) -> Any:
    return (x * x).sum()


@case
def jit_of_a_gradient() -> Again:
    jax.jit(jax.grad(squares))(array(3))
    return lambda: jax.jit(jax.grad(squares))(array(3))


@case
def jit_of_a_decorated_function() -> Again:
    def decorated(fun: Any) -> Any:
        @functools.wraps(fun)
        def call(x):
            return fun(x)

        return call

    jax.jit(decorated(squares))(array(3))
    return lambda: jax.jit(decorated(squares))(array(3))


@case
def jit_of_a_jitted_function() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(3))
    return lambda: jax.jit(f)(array(3))


@case
def new_object_that_can_be_called() -> Again:
    jax.jit(Model(2))(array(3))
    return lambda: jax.jit(Model(3))(array(3))


@case
def bound_method_of_one_object() -> Again:
    model = Model(2)
    jax.jit(model.plain)(array(3))
    return lambda: jax.jit(model.plain)(array(3))


@case
def partial_with_another_value() -> Again:
    jax.jit(functools.partial(scaled, 2))(array(3))
    return lambda: jax.jit(functools.partial(scaled, 3))(array(3))


@case
def lambda_of_a_factory() -> Again:
    @functools.lru_cache
    def make(n):
        return jax.jit(lambda x: x * n)

    make(2)(array(3))
    return lambda: make(3)(array(3))


@case
def defined_again() -> Again:
    def define() -> Any:
        names: dict[str, Any] = {"__name__": __name__}
        exec("def f(x):\n    return x + 1", names)  # noqa: S102 - as a notebook does
        return names["f"]

    jax.jit(define())(array(3))
    return lambda: jax.jit(define())(array(3))
