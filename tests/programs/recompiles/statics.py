"""Other static arguments."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tests.programs.recompiles.cases import Again, array, case, mesh, scaled, static
from tests.programs.recompiles.classes import Larger, Model


@case
def static_number() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, n):
        return x * n

    f(array(3), 3)
    return lambda: f(array(3), 4)


@case
def static_name() -> Again:
    @functools.partial(jax.jit, static_argnames="mode")
    def f(x, *, mode):
        return x, mode == "a"

    f(array(3), mode="train")
    return lambda: f(array(3), mode="eval")


@case
def static_numbers_of_one_hash() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, axis):
        return x.sum(axis)

    f(array(3, 3), -1)
    return lambda: f(array(3, 3), -2)


@case
def static_left_out() -> Again:
    @functools.partial(jax.jit, static_argnames="n")
    def f(x, n=2):
        return x * n

    f(array(3))
    return lambda: f(array(3), n=2)


@case
def static_by_name_now() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, n):
        return x * n

    f(array(3), 3)
    return lambda: f(array(3), n=3)


@case
def static_tuple() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, sizes):
        return x.reshape(sizes)

    f(array(6), (2, 3))
    return lambda: f(array(6), (3, 2))


@case
def static_of_another_type() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, flag):
        return x * flag

    f(array(3), True)  # noqa: FBT003 - a static value
    return lambda: f(array(3), 1)


@case
def static_lambda() -> Again:
    @functools.partial(jax.jit, static_argnums=1)
    def f(x, activation):
        return activation(x)

    def call() -> object:
        return f(array(3), lambda x: x + 1)

    call()
    return call


class Config:
    """An object that is hashed by identity, and has a text that cannot be had."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __repr__(self) -> str:
        raise AssertionError


@case
def static_object() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(config, x):
        return x * config.size

    f(Config(2), array(3))
    return lambda: f(Config(2), array(3))


@dataclass(frozen=True)
class Options:
    """An object that is hashed by value."""

    size: int
    name: str = "net"


@case
def static_dataclass() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(options, x):
        return x * options.size

    f(Options(2), array(3))
    return lambda: f(Options(4), array(3))


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@case
def static_enum() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(color, x):
        return x * color.value

    f(Color.RED, array(3))
    return lambda: f(Color.BLUE, array(3))


class Holder:
    """A hashable object with an array in it."""

    def __init__(self, values: Any) -> None:
        self.values = values


@case
def static_object_with_an_array() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(holder, x):
        return x * holder.values

    f(Holder(np.ones(3)), array(3))
    return lambda: f(Holder(np.ones(3)), array(3))


@case
def static_text_too_long() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(text, x):
        return x * len(text)

    f("a" * 500, array(3))
    return lambda: f("b" * 500, array(3))


@case
def static_partial() -> Again:
    @functools.partial(jax.jit, static_argnums=0)
    def f(fun, x):
        return fun(x)

    f(functools.partial(scaled, 3), array(3))
    return lambda: f(functools.partial(scaled, 3), array(3))


@case
def static_self() -> Again:
    Model(2).method(array(3))
    return lambda: Model(2).method(array(3))


@case
def static_not_a_number() -> Again:
    return static(float("nan"), float("nan"))


@case
def static_number_of_numpy() -> Again:
    return static(3, np.int64(3))


@case
def static_dtype() -> Again:
    return static(np.dtype("float32"), np.dtype("int32"))


@case
def static_none() -> Again:
    return static(None, 3)


@case
def static_set() -> Again:
    return static(frozenset([1]), frozenset([2]))


@case
def static_function() -> Again:
    return static(scaled, static)


@case
def static_mesh() -> Again:
    return static(mesh(), mesh(("a", "b"), (2, 4)))


@case
def static_class() -> Again:
    Model.made(array(3))
    return lambda: Larger.made(array(3))


@case
def static_counted_from_the_end() -> Again:
    @functools.partial(jax.jit, static_argnums=-1)
    def f(x, n):
        return x * n

    f(array(3), 3)
    return lambda: f(array(3), 4)
