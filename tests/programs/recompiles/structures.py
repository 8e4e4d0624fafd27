"""Other trees of arguments."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import jax

from tests.programs.recompiles.cases import (
    CASES,
    Again,
    array,
    case,
    leaves_plus_one,
    twice,
)
from tests.programs.recompiles.classes import Layer, Module, State


@case
def class_defined_again() -> Again:
    def point() -> Any:
        class Point(NamedTuple):
            x: Any

        return Point(array(1))

    return leaves_plus_one(point(), point())


@case
def argument_given() -> Again:
    x = array(3)
    return twice(lambda x, mask=None: x if mask is None else x * mask, (x,), (x, x))


@case
def argument_by_name_now() -> Again:
    @jax.jit
    def f(x, y):
        return x + y

    f(array(3), array(3))
    return lambda: f(array(3), y=array(3))


@case
def ordered_dict_in_another_order() -> Again:
    ordered = collections.OrderedDict
    return leaves_plus_one(
        ordered(a=array(1), b=array(1)), ordered(b=array(1), a=array(1))
    )


@case
def ordered_dict_with_another_key() -> Again:
    ordered = collections.OrderedDict
    return leaves_plus_one(ordered(a=array(1)), ordered(a=array(1), b=array(2)))


@case
def default_dict_with_another_default() -> Again:
    default = collections.defaultdict
    return leaves_plus_one(default(int, a=array(1)), default(list, a=array(1)))


@case
def star_args_longer() -> Again:
    @jax.jit
    def f(*xs):
        return sum(xs)

    f(array(3))
    return lambda: f(array(3), array(3))


@case
def star_kwargs_longer() -> Again:
    @jax.jit
    def f(x, **others):
        return x + sum(others.values())

    f(array(3), a=array(3))
    return lambda: f(array(3), a=array(3), b=array(3))


CASES.update(
    key_added=lambda: leaves_plus_one(
        {"a": array(1)}, {"a": array(1), "mask": array(2)}
    ),
    key_removed=lambda: leaves_plus_one(
        {"a": array(1), "b": array(2), "c": array(3)}, {"b": array(2)}
    ),
    key_renamed=lambda: leaves_plus_one({"x": {"a": array(1)}}, {"x": {"b": array(1)}}),
    key_added_and_a_shape=lambda: leaves_plus_one(
        {"a": array(1), "z": array(1)}, {"a": array(1), "b": array(2), "z": array(9)}
    ),
    leaf_became_none=lambda: leaves_plus_one(
        {"x": array(1), "mask": array(2)}, {"x": array(1), "mask": None}
    ),
    none_became_a_leaf=lambda: leaves_plus_one([array(1), None], [array(1), array(2)]),
    tuple_longer=lambda: leaves_plus_one(
        (array(1), array(1)), (array(1), array(1), array(1))
    ),
    list_became_tuple=lambda: leaves_plus_one(
        [array(1), array(1)], (array(1), array(1))
    ),
    leaf_became_a_dict=lambda: leaves_plus_one(
        {"w": array(1)}, {"w": {"q": array(1), "scale": array()}}
    ),
    ordered_dict_became_a_dict=lambda: leaves_plus_one(
        collections.OrderedDict(a=array(1)), {"a": array(1)}
    ),
    static_part_of_a_class=lambda: leaves_plus_one(
        Module(array(1), "relu"), Module(array(1), "gelu")
    ),
    named_tuple_became_a_tuple=lambda: leaves_plus_one(
        State(array(1), array(2)), (array(1), array(2))
    ),
    static_field_of_a_dataclass=lambda: leaves_plus_one(
        [Layer(array(2), "a")], [Layer(array(2), "b")]
    ),
    none_became_an_empty_tuple=lambda: leaves_plus_one(
        (array(1), None), (array(1), ())
    ),
    key_that_is_a_number=lambda: leaves_plus_one(
        {0: array(1), 1: array(1)}, {0: array(1), 2: array(1)}
    ),
    tuple_shorter_and_a_shape=lambda: leaves_plus_one(
        (array(1), array(2), array(3)), (array(1), array(9))
    ),
    default_given=lambda: twice(lambda x, n=1: x * n, (array(3),), (array(3), 1)),
)
