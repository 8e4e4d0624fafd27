"""Other shapes."""

from __future__ import annotations

import threading

import jax

from tests.programs.recompiles.cases import (
    CASES,
    Again,
    array,
    case,
    leaves_plus_one,
    plus_one,
    twice,
)
from tests.programs.recompiles.classes import Layer, Module, Pair, State


@case
def shape_among_star_args() -> Again:
    @jax.jit
    def f(first, *rest):
        return [x + 1 for x in (first, *rest)]

    f(array(1), array(2), array(3))
    return lambda: f(array(1), array(2), array(4))


@case
def shape_of_an_argument_by_name() -> Again:
    @jax.jit
    def f(x, *, scale):
        return x, scale + 1

    f(array(1), scale=array(2))
    return lambda: f(array(1), scale=array(3))


@case
def shape_among_star_kwargs() -> Again:
    @jax.jit
    def f(x, **others):
        return x, others["b"] + 1

    f(array(1), b=array(2), a=array(1))
    return lambda: f(array(1), b=array(3), a=array(1))


@case
def shape_closest_to_an_older_one() -> Again:
    @jax.jit
    def f(x, y):
        return x + 1, y + 1

    f(array(1), array(1))
    f(array(5), array(5))
    f(array(6), array(6))
    return lambda: f(array(1), array(2))


@case
def shape_after_a_scan() -> Again:
    def step(carry, x):
        return carry + x, carry

    @jax.jit
    def f(xs):
        return jax.lax.scan(step, jax.numpy.float32(0), xs)

    f(array(3))
    return lambda: f(array(4))


@case
def shape_inside_and_around() -> Again:
    @jax.jit
    def inner(x):
        return x + 1

    @jax.jit
    def around(x):
        return inner(x) * 2

    around(array(3))
    return lambda: around(array(4))


@case
def shape_of_a_function_with_a_gradient_of_its_own() -> Again:
    @jax.custom_jvp
    def g(x):
        return x * 2

    g.defjvp(lambda primals, tangents: (g(primals[0]), tangents[0] * 2))
    f = jax.jit(g)
    f(array(3))
    return lambda: f(array(4))


@case
def shape_on_another_thread() -> Again:
    @jax.jit
    def f(x):
        return x + 1

    def again() -> None:
        thread = threading.Thread(target=f, args=(array(4),))
        thread.start()
        thread.join()

    f(array(3))
    return again


CASES.update(
    shape=lambda: plus_one(array(3), array(4)),
    shape_in_a_dict=lambda: twice(
        lambda batch: batch["x"] + 1,
        ({"x": array(32, 128), "y": array(32)},),
        ({"x": array(33, 128), "y": array(32)},),
    ),
    shape_deep_inside=lambda: twice(
        lambda params: params["layers"][1]["w"] + 1,
        ({"layers": [{"w": array(2)}, {"w": array(2)}]},),
        ({"layers": [{"w": array(2)}, {"w": array(3)}]},),
    ),
    shape_of_two_arguments=lambda: twice(
        lambda x, y: x + y, (array(3), array(3)), (array(4), array(4))
    ),
    shape_of_another_rank=lambda: plus_one(array(), array(1)),
    shape_without_elements=lambda: plus_one(array(3, 2), array(0, 2)),
    shape_in_a_named_tuple=lambda: twice(
        lambda state: state.params + 1,
        (State(array(), array(2)),),
        (State(array(), array(3)),),
    ),
    shape_in_a_class=lambda: twice(
        lambda model: model.weight + 1,
        (Module(array(2), "relu"),),
        (Module(array(3), "relu"),),
    ),
    shape_in_a_class_without_names=lambda: twice(
        lambda pair: pair.children[1] + 1,
        (Pair(array(2), array(2)),),
        (Pair(array(2), array(3)),),
    ),
    shape_in_a_dataclass=lambda: leaves_plus_one(
        {"a": [Layer(array(2), "a")]}, {"a": [Layer(array(3), "a")]}
    ),
    shape_under_a_key_that_is_no_text=lambda: leaves_plus_one(
        {("a", 1): array(1)}, {("a", 1): array(2)}
    ),
)
