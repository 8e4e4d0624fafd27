"""
Functions compiled under transformations outside of jit.

After a first step, each case makes two more; every program of theirs is one of the
same function for another shape, value or closure. If programs are compiled after the
call, the function has a name of its own: JAX 0.4 names them by nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tests.programs.recompiles.cases import CASES, Again, array, case


STEPS = 2


def steps(step: Callable[[int], object]) -> Again:
    """Make the first *step*, and return what makes the others."""
    step(1)
    return lambda: [step(number) for number in range(2, STEPS + 2)]


def over_sizes(fun: Any, step: Callable[[Any, Any], object], *rest: int) -> Again:
    """Make a *step* of *fun*, jitted, with arrays of several sizes."""
    f = jax.jit(fun)
    inputs = [array(size, *rest) for size in range(STEPS + 2)]
    return steps(lambda n: step(f, inputs[n]))


def squared_sines(x):
    return (jnp.sin(x) ** 2).sum()


CASES.update(
    gradients_with_checkpoints=lambda: over_sizes(
        squared_sines, lambda f, x: jax.grad(jax.checkpoint(f))(x)
    ),
    derivatives=lambda: over_sizes(
        lambda x: (x * x).sum(), lambda f, x: jax.jvp(f, (x,), (x,))
    ),
    linearized=lambda: over_sizes(
        lambda x: (x * x).sum(), lambda f, x: jax.linearize(f, x)[1](x)
    ),
    mapped_over_sizes=lambda: over_sizes(
        lambda x: (x * x).sum(), lambda f, x: jax.vmap(f)(x), 3
    ),
)


@case
def mapped_closures() -> Again:
    x = array(4, 3)
    return steps(lambda n: jax.vmap(jax.jit(lambda row: row * n))(x))


@case
def gradients_of_shapes() -> Again:
    @jax.jit
    def loss(weights, batch):
        return ((batch @ weights) ** 2).sum()

    weights = array(3)
    batches = [array(size, 3) for size in range(STEPS + 2)]
    return steps(lambda n: jax.grad(loss)(weights, batches[n]))


@case
def gradients_of_closures() -> Again:
    weights = array(3)
    batches = [array(4, 3) for _ in range(STEPS + 2)]

    def step(number: int) -> object:
        batch = batches[number]

        @jax.jit
        def loss_of_batch(weights):
            return ((batch @ weights) ** 2).sum()

        return jax.value_and_grad(loss_of_batch)(weights)

    return steps(step)


@case
def gradients_of_static_arguments() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def scaled(x, n):
        return (x * n).sum()

    x = array(3)
    return steps(lambda n: jax.grad(scaled)(x, n))


@case
def gradients_of_unrolled_loops() -> Again:
    @jax.jit
    def unrolled(rows):
        total = 0.0
        for number in range(rows.shape[0]):
            total = total * rows[number].sum() + rows[number].sum()
        return total

    inputs = [array(size + 1, 3) for size in range(STEPS + 2)]
    return steps(lambda n: jax.grad(unrolled)(inputs[n]))


@case
def gradients_of_what_was_dropped() -> Again:
    @jax.jit
    def loss(x):
        return (x * x).sum()

    x = array(3)

    def step(_: int) -> object:
        loss.clear_cache()
        jax.clear_caches()
        return jax.jvp(loss, (x,), (x,))

    return steps(step)


@case
def gradients_with_rules_of_their_own() -> Again:
    @jax.custom_vjp
    def with_a_rule(x):
        return (x**2).sum()

    with_a_rule.defvjp(lambda x: (with_a_rule(x), x), lambda x, by: (2 * x * by,))
    jitted = jax.jit(with_a_rule)
    inputs = [array(size) for size in range(STEPS + 2)]
    return steps(lambda n: jax.grad(jitted)(inputs[n]))


@case
def many_transformations() -> Again:
    @jax.jit
    def f(x, y):
        return (x * y).sum()

    x, rows = array(3), array(4, 3)

    def again() -> None:
        for _ in range(2):
            f(x, x)
            jax.grad(f)(x, x)
            jax.grad(f, argnums=1)(x, x)
            jax.grad(f, argnums=(0, 1))(x, x)
            jax.value_and_grad(f)(x, x)
            jax.vmap(f)(rows, rows)
            jax.vmap(f, (0, None))(rows, x)
            jax.vmap(f, (None, 0))(x, rows)
            jax.vmap(jax.grad(f))(rows, rows)
            jax.jvp(f, (x, x), (x, x))
            jax.grad(jax.checkpoint(f))(x, x)
            jax.linearize(f, x, x)[1](x, x)

    return again


@case
def gradients_of_several_models() -> Again:
    class Model:
        def __init__(self, size: int) -> None:
            self.size = size

        def loss(self, x):
            return (x * self.size).sum()

    models = [Model(size) for size in range(4)]
    losses: list[Callable[[Any], Any]] = [jax.jit(model.loss) for model in models]
    x = array(3)
    return lambda: [jax.grad(loss)(x) for _ in range(3) for loss in losses]
