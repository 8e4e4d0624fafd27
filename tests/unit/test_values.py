"""Values are put in words without running their code."""

import enum
import functools
import math
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from jaxmon.agent.functions import bare_name, place_of
from jaxmon.agent.guard import Guard
from jaxmon.agent.recompiles.value_inspection import LIMIT, Inspection
from jaxmon.agent.recompiles.values import text_of, value_of


class Rude:
    """An object whose own methods must not be called."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __repr__(self) -> str:
        raise AssertionError

    __str__ = __repr__

    def __getattr__(self, name: str) -> object:
        raise AssertionError(name)


class Color(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int


@dataclass(frozen=True)
class Options:
    size: int
    rude: Any = None


class Broken:
    """An object that cannot even be hashed."""

    def __hash__(self) -> int:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError


def function() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (10**100, "int of 333 bits"),
        (-0.0, "-0.0"),
        ("a'b", '"a\'b"'),
        (None, "None"),
        ((1,), "(1,)"),
        ([1, "a"], "[1, 'a']"),
        (frozenset({2, 1}), "frozenset({1, 2})"),
        ({"a": 1}, "{'a': 1}"),
        (Color.RED, "Color.RED"),
        (Point(1), "Point(x=1)"),
        (Rude, "Rude"),
        (math, "module math"),
        (np.float32(1.5), repr(np.float32(1.5))),
        (np.ones((2, 3), np.int8), "int8[2,3]"),
        (np.dtype("float32"), "dtype('float32')"),
        (len, "len"),
        (Options(2), "Options(size=2, rude=None)"),
    ],
)
def test_a_value_reads_as_in_a_program(value: object, text: str) -> None:
    """Plain values as written, arrays as types, objects by their fields."""
    assert text_of(value) == text


def test_no_code_of_an_object_runs_for_its_text() -> None:
    """Not its ``__repr__``, which may raise, wait or be huge, nor its hash."""
    assert text_of(Rude(3)) == "Rude(size=3)"
    assert text_of(Broken()) == "Broken()"


def test_functions_say_where_they_are() -> None:
    """A function's text has its line, a partial's what was given."""
    assert text_of(function).startswith("function at test_values.py:")
    assert text_of(lambda: 1).startswith("<lambda> at test_values.py:")
    partial = functools.partial(function)
    assert text_of(partial).startswith("partial(function at test_values.py:")
    assert text_of(functools.partial(max, 3, default="a")) == "partial(max, 3, 'a')"
    cached = functools.lru_cache(function)  # as jax.jit's objects and custom_jvp's
    assert text_of((cached, 1)).startswith("(function at test_values.py:")
    assert place_of(partial) == place_of(function)
    assert place_of(len) is None
    assert bare_name("Model.make.<locals>.step") == "step"


def test_large_and_deep_values_stay_short() -> None:
    """Neither length, depth nor a cycle makes a text long."""
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: Any = 1
    for _ in range(1000):
        deep = (deep, deep)

    for value in (cycle, deep, list(range(10**6)), "a" * 10**7, Options(1, cycle)):
        assert len(text_of(value)) <= LIMIT


def test_values_that_jax_tells_apart_have_different_keys() -> None:
    """Also where Python's hash or the text is the same."""
    different = [-1, -2, True, 1, 1.0, "1", (1,), (1.0,), None, Options(1), Options(2)]
    keys = {value_of(value).key for value in different}
    assert len(keys) == len(different)

    texts = ["a" * 500, "a" * 499 + "b"]
    assert value_of(texts[0]).text == value_of(texts[1]).text
    assert value_of(texts[0]) != value_of(texts[1])


def test_objects_compared_by_identity_are_told() -> None:
    """Their text is the same, and they are not equal."""
    for make in (lambda: Rude(1), lambda: lambda: 1, lambda: functools.partial(len)):
        first, second = make(), make()
        assert value_of(first) != value_of(second)
        assert value_of(first) == value_of(first)
        assert value_of(first).by_identity
        assert value_of((1, first)).by_identity
    for value in (1, "a", (1, 2), Options(1), Rude, math, Color.RED, None, (None,)):
        assert not value_of(value).by_identity


def test_a_tuple_made_anew_is_the_same_value() -> None:
    """A static part may be a new tuple each time; its content counts."""
    rude, other = Rude(1), Rude(1)
    for items in ([None, "a"], [rude, 1], [len, (rude, (math.sin,))]):
        first, second = tuple(items), tuple(items)
        assert value_of(first) == value_of(second)
        assert value_of(frozenset(items)) == value_of(frozenset(items))
    assert value_of((rude, 1)) != value_of((other, 1))
    assert value_of((1, (rude,))) != value_of((1, (other,)))
    assert value_of((rude, other)) != value_of((other, rude))


def calls_of(value: object) -> int:
    """Return how many functions are called to look at *value*, of Python and of C."""
    count = 0

    def see(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        value_of(value)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "make",
    [
        lambda n: tuple(range(n)),
        lambda n: frozenset(range(n)),
        lambda n: dict.fromkeys(range(n), 1),
        lambda n: "a" * n,
        lambda n: 1 << (8 * n),
        lambda n: tuple((i, (i, i)) for i in range(n // 4)),
        lambda n: Options(1, tuple(range(n))),
        lambda n: functools.partial(max, *range(n)),
        lambda n: [functools.partial(max, *[functools.partial(min, 1)] * n)] * 9,
    ],
)
def test_the_work_does_not_grow_with_the_value(make: Any) -> None:
    """Beyond a thousand parts, a value that is forty times as large costs no more."""
    once, more = calls_of(make(5_000)), calls_of(make(200_000))

    assert more <= once + 10
    assert more < 30_000


def test_large_values_are_told_apart_by_length_and_both_ends() -> None:
    """Of what lies between it is known that it was not looked at."""
    whole, other = tuple(range(5_000)), tuple(range(5_001))
    assert value_of(whole) == value_of(tuple(range(5_000)))
    assert value_of(whole) != value_of(other)
    assert value_of(whole) != value_of((-1, *whole[1:]))
    assert value_of(whole) != value_of((*whole[:-1], -1))
    assert value_of(whole).whole is False
    assert value_of(whole[:500]).whole is True


class Versioned:
    """An object that says itself what it is equal to, by what nobody is to see."""

    def __init__(self, version: int) -> None:
        self.name, self._version = "net", version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Versioned) and self._version == other._version

    def __hash__(self) -> int:
        return hash(self._version)


def test_private_fields_may_make_a_difference_or_not() -> None:
    """Only the class knows; so they are kept apart from what certainly does."""
    first, second = value_of(Versioned(1)), value_of(Versioned(2))
    assert first == second
    assert first.hidden != second.hidden
    assert first.hidden == value_of(Versioned(1)).hidden


@dataclass(frozen=True)
class Cached:
    size: int
    cache: Any = field(default=None, compare=False)


def test_dataclasses_are_compared_as_they_compare_themselves() -> None:
    """A field counts if it is compared, also by identity."""
    assert value_of(Cached(1, object())) == value_of(Cached(1, object()))
    assert value_of(Cached(1, object())).hidden == 0
    assert value_of(Options(1, object())) != value_of(Options(1, object()))


def test_not_a_number_is_equal_to_itself_only() -> None:
    """As JAX finds it, which hashes it by identity."""
    one, other = float("nan"), float("nan")
    assert value_of(one) == value_of(one) != value_of(other)
    assert value_of((one,)) != value_of((other,))


def test_a_value_that_changes_meanwhile_costs_its_own_words(monkeypatch):
    """One that cannot be looked at is named, and nothing else fails for it."""

    def refuse(*_: object) -> Any:
        raise RuntimeError

    monkeypatch.setattr(Guard, "strict", False)
    monkeypatch.setattr(Inspection, "inspect", refuse)
    found = value_of(Options(1))
    assert (found.text, found.whole) == ("Options (could not be inspected)", False)
