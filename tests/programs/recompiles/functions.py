"""Functions made again, and programs dropped."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from tests.programs.recompiles.cases import CASES, Again, array, case, each, scaled
from tests.programs.recompiles.classes import Model


@case
def new_lambda_and_a_shape() -> Again:
    def call(size: int) -> object:
        return jax.jit(lambda x: x * 2)(array(size))

    call(3)
    return lambda: call(4)


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
    def call(size: int) -> object:
        return jax.jit(Model(size).plain)(array(3))

    call(2)
    return lambda: call(3)


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
def jit_of_a_decorated_function() -> Again:
    def decorated(fun: Any) -> Any:
        @functools.wraps(fun)
        def call(x):
            return fun(x)

        return call

    return each(lambda: jax.jit(decorated(squares))(array(3)))


@case
def jit_of_a_jitted_function() -> Again:
    def again() -> object:
        @jax.jit
        def f(x):
            return x + 1

        return jax.jit(f)(array(3))

    again()
    return again


@case
def new_object_that_can_be_called() -> Again:
    def call(size: int) -> object:
        return jax.jit(Model(size))(array(3))

    call(2)
    return lambda: call(3)


@case
def bound_method_of_one_object() -> Again:
    model = Model(2)

    return each(lambda: jax.jit(model.plain)(array(3)))


@case
def partial_with_another_value() -> Again:
    def call(factor: int) -> object:
        return jax.jit(functools.partial(scaled, factor))(array(3))

    call(2)
    return lambda: call(3)


@case
def new_closure_over_arrays() -> Again:
    batches = [array(3), array(3)]

    def call(batch: Any) -> object:
        return jax.jit(lambda x: (x * batch).sum())(array(3))

    call(batches[0])
    return lambda: call(batches[1])


@case
def gradient_of_a_new_closure() -> Again:
    def call(factor: int) -> object:
        def loss(x):
            return (x * factor).sum()

        return jax.jit(jax.grad(loss))(array(3))

    call(2)
    return lambda: call(3)


@case
def equal_functions_that_both_exist() -> Again:
    def make() -> Any:
        return jax.jit(lambda x: x * 2)

    first, second = make(), make()
    first(array(3))
    return lambda: (first(array(3)), second(array(3)))


@case
def model_jitted_by_each_request() -> Again:
    models = [Model(2), Model(3)]

    def call() -> list[Any]:
        return [jax.jit(model.plain)(array(3)) for model in models[:1]]

    call()
    return call


@case
def defined_again() -> Again:
    def define() -> Any:
        names: dict[str, Any] = {"__name__": __name__}
        exec("def f(x):\n    return x + 1", names)  # noqa: S102 - as a notebook does
        return names["f"]

    return each(lambda: jax.jit(define())(array(3)))


CASES.update(
    new_lambda=lambda: each(lambda: jax.jit(lambda x: x * 2)(array(3))),
    new_partial=lambda: each(lambda: jax.jit(functools.partial(scaled, 2))(array(3))),
    new_pmapped_lambda=lambda: each(
        lambda: jax.pmap(lambda x: x * 2)(np.ones((8, 3), np.float32))
    ),
    jit_of_a_gradient=lambda: each(lambda: jax.jit(jax.grad(squares))(array(3))),
)
