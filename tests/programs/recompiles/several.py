"""Several functions from one line, none of which is another one created anew."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from tests.programs.recompiles.cases import Again, array, case
from tests.programs.recompiles.classes import Model
from tests.programs.recompiles.functions import squares


def call_each(functions: list[Callable[[Any], Any]]) -> None:
    """Call each of *functions* as a program does that uses all of them."""
    x = array(3)
    for _ in range(3):
        for function in functions:
            function(x)


@case
def models_in_a_list() -> Again:
    functions = [jax.jit(Model(size).plain) for size in range(7)]
    return lambda: call_each(functions)


@case
def models_jitted_on_the_spot() -> Again:
    models = [Model(size) for size in range(7)]
    x = array(3)
    return lambda: [jax.jit(model.plain)(x) for model in models]


@case
def models_that_jit_a_closure() -> Again:
    class Trainer:
        def __init__(self, factor: int) -> None:
            self.factor = factor
            self.step = jax.jit(lambda x: x * self.factor)
            self.step(array(3))

    return lambda: [Trainer(factor) for factor in range(7)]


@case
def transformations_of_one_loss() -> Again:
    transformations: list[Callable[[Any], Any]] = [
        lambda fun: fun,
        jax.grad,
        jax.value_and_grad,
        functools.partial(jax.value_and_grad, allow_int=True),
        jax.jacfwd,
        jax.hessian,
    ]
    x = array(3)
    return lambda: [jax.jit(one(squares))(x) for one in transformations]


@case
def function_and_its_gradient() -> Again:
    loss = jax.jit(squares)
    gradient = jax.jit(jax.grad(squares))
    loss(array(3))
    return lambda: gradient(array(3))


@case
def jitted_function_jitted_again() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    f(array(3))
    return lambda: jax.jit(f)(array(3))


@case
def gradient_at_two_places() -> Again:
    training, evaluation = (
        jax.jit(jax.grad(squares)),
        jax.jit(jax.grad(squares)),
    )
    training(array(3))
    return lambda: evaluation(array(3))


@case
def functions_from_one_helper() -> Again:
    def jitted(fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(fun)
        def call(x):
            return fun(x)

        jitted: Callable[[Any], Any] = jax.jit(call)
        return jitted

    @jitted
    def double(x):
        return x * 2

    @jitted
    def triple(x):
        return x * 3

    return lambda: call_each([double, triple])


@case
def gradients_of_functions_in_a_list() -> Again:
    def make(factor: int) -> Callable[[Any], Any]:
        return lambda x: (x * factor).sum()

    losses = [make(factor) for factor in range(3)]
    x = array(3)
    return lambda: [jax.jit(jax.grad(loss))(x) for loss in losses]


@case
def lambda_of_a_factory() -> Again:
    @functools.lru_cache
    def make(n):
        return jax.jit(lambda x: x * n)

    make(2)(array(3))
    return lambda: (make(2)(array(3)), make(3)(array(3)))
