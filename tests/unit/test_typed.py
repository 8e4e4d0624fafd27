"""Untrusted JSON as dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from jaxmon.facts.reader import from_json, sifted


@dataclass(frozen=True)
class Part:
    """Something in a whole."""

    name: str = ""
    size: float | None = None


@dataclass(frozen=True)
class Whole:
    """A field of each kind."""

    text: str = "none"
    count: int = 7
    on: bool = True
    part: Part = field(default_factory=Part)
    parts: tuple[Part, ...] = ()
    sizes: Mapping[str, float] = field(default_factory=dict)
    anything: Any = None


def test_each_field_is_read_as_its_type():
    """Numbers become text where text is expected, and whole where they count."""
    page = {
        "text": 5,
        "count": 3.0,
        "on": False,
        "part": {"name": "a", "size": 1},
        "parts": [{"name": "b"}, {}],
        "sizes": {"x": 1, "y": 2.5},
        "anything": [1],
        "another": 1,
    }

    assert from_json(Whole, page) == Whole(
        text="5",
        count=3,
        on=False,
        part=Part("a", 1.0),
        parts=(Part("b"), Part()),
        sizes={"x": 1.0, "y": 2.5},
        anything=[1],
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", ["a"]),
        ("count", True),
        ("count", float("nan")),
        ("on", 1),
        ("part", "a"),
        ("parts", "abc"),
        ("sizes", {"x": "1", "y": None}),
        ("count", 10**400),
    ],
)
def test_what_is_of_another_type_is_missing(name, value):
    """The field keeps its default, and so do entries of what has several."""
    assert from_json(Whole, {name: value}) == Whole()


def test_an_object_gives_its_values_with_their_names():
    """Pages list functions by name; the model has a name in each."""
    page = {"parts": {"a": {"size": 1}, "b": None}}

    assert from_json(Whole, page).parts == (Part("a", 1.0), Part("b"))


def test_text_is_harmless():
    """Whether it is a value, a key, or in a field of any type."""
    page = {"text": "a\x1b[1m", "sizes": {"b\x07": 1}, "anything": "c\nd"}
    found = from_json(Whole, page)

    assert found.text == "a\\x1b[1m"
    assert list(found.sizes) == ["b\\x07"]
    assert found.anything == "c d"


@dataclass(frozen=True)
class Measured:
    """Numbers of several kinds."""

    age_seconds: float | None = None
    calls: int = 0
    loss: float = 0.0
    sizes_bytes: Mapping[str, float] = field(default_factory=dict)


@pytest.mark.parametrize(
    "odd", [float("nan"), float("inf"), -float("inf"), 1e308, 10**400, -1, -1e300]
)
def test_implausible_numbers_are_dropped_and_named(odd):
    """Not finite, negative where that cannot be, or beyond anything measured."""
    given = {"age_seconds": odd, "calls": odd, "sizes_bytes": {"a": odd, "b": 2}}
    found, dropped = sifted(Measured, {**given, "loss": -1e6})
    assert found == Measured(loss=-1e6, sizes_bytes={"b": 2.0})
    assert dropped == ("age_seconds", "calls", "sizes_bytes")


def test_a_switch_is_no_number():
    """Nor is text, which is of another type; both leave the default."""
    found, dropped = sifted(Measured, {"age_seconds": True, "calls": "5"})
    assert (found, dropped) == (Measured(), ())
