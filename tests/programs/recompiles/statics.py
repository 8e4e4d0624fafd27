"""Other static arguments."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tests.programs.recompiles.cases import (
    CASES,
    Again,
    array,
    case,
    each,
    mesh,
    scaled,
    static,
    twice,
)
from tests.programs.recompiles.classes import Larger, Model


@case
def static_name() -> Again:
    @functools.partial(jax.jit, static_argnames="mode")
    def f(x, *, mode):
        return x, mode == "a"

    f(array(3), mode="train")
    return lambda: f(array(3), mode="eval")


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

    return each(lambda: f(array(3), lambda x: x + 1))


class Config:
    """An object that is hashed by identity, and has a text that cannot be had."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __repr__(self) -> str:
        raise AssertionError


@dataclass(frozen=True)
class Options:
    """An object that is hashed by value."""

    size: int
    name: str = "net"


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Holder:
    """A hashable object with an array in it."""

    def __init__(self, values: Any) -> None:
        self.values = values


@case
def static_self() -> Again:
    Model(2).method(array(3))
    return lambda: Model(2).method(array(3))


@case
def static_class() -> Again:
    Model.made(array(3))
    return lambda: Larger.made(array(3))


CASES.update(
    static_number=lambda: twice(
        lambda x, n: x * n, (array(3), 3), (array(3), 4), static_argnums=1
    ),
    static_numbers_of_one_hash=lambda: twice(
        lambda x, axis: x.sum(axis),
        (array(3, 3), -1),
        (array(3, 3), -2),
        static_argnums=1,
    ),
    static_tuple=lambda: twice(
        lambda x, sizes: x.reshape(sizes),
        (array(6), (2, 3)),
        (array(6), (3, 2)),
        static_argnums=1,
    ),
    static_object=lambda: twice(
        lambda config, x: x * config.size,
        (Config(2), array(3)),
        (Config(2), array(3)),
        static_argnums=0,
    ),
    static_dataclass=lambda: twice(
        lambda options, x: x * options.size,
        (Options(2), array(3)),
        (Options(4), array(3)),
        static_argnums=0,
    ),
    static_enum=lambda: twice(
        lambda color, x: x * color.value,
        (Color.RED, array(3)),
        (Color.BLUE, array(3)),
        static_argnums=0,
    ),
    static_object_with_an_array=lambda: twice(
        lambda holder, x: x * holder.values,
        (Holder(np.ones(3)), array(3)),
        (Holder(np.ones(3)), array(3)),
        static_argnums=0,
    ),
    static_text_too_long=lambda: twice(
        lambda text, x: x * len(text),
        ("a" * 500, array(3)),
        ("b" * 500, array(3)),
        static_argnums=0,
    ),
    static_partial=lambda: twice(
        lambda fun, x: fun(x),
        (functools.partial(scaled, 3), array(3)),
        (functools.partial(scaled, 3), array(3)),
        static_argnums=0,
    ),
    static_not_a_number=lambda: static(float("nan"), float("nan")),
    static_number_of_numpy=lambda: static(3, np.int64(3)),
    static_dtype=lambda: static(np.dtype("float32"), np.dtype("int32")),
    static_none=lambda: static(None, 3),
    static_set=lambda: static(frozenset([1]), frozenset([2])),
    static_function=lambda: static(scaled, static),
    static_mesh=lambda: static(mesh(), mesh(("a", "b"), (2, 4))),
    static_counted_from_the_end=lambda: twice(
        lambda x, n: x * n, (array(3), 3), (array(3), 4), static_argnums=-1
    ),
)
