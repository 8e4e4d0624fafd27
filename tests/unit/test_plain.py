"""Anything as JSON: of JSON types, bounded, strict."""

import json
from typing import Any

import numpy as np
import pytest

from jaxmon.facts.record import dumps, encoded, last


class Slow:
    """An object whose text must not be asked for."""

    def __repr__(self) -> str:
        raise AssertionError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (1.5, 1.5),
        (float("nan"), None),
        (float("-inf"), None),
        (1 << 63, None),
        ([10**5000], [None]),
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (np.float64("inf"), None),
        ("x" * 3000, "x" * 2000),
        ((1, {2}), [1, [2]]),
        ({1: "a", None: "b", (2, 3): "c"}, {"1": "a", "None": "b", "[2, 3]": "c"}),
        (Slow(), "<Slow>"),
        ([Slow()], ["<Slow>"]),
        ({Slow(): 1}, {"<Slow>": 1}),
        (np.zeros(3), "<ndarray>"),
        (b"x", "<bytes>"),
    ],
)
def test_everything_becomes_json(value, expected):
    """What JSON lacks is nothing, and an object is no more than its type."""
    found = encoded(value)

    assert found == expected
    assert type(found) is type(expected)
    assert json.loads(dumps(found)) == expected


def test_a_structure_that_holds_itself_ends():
    """Depth and length are bounded, whatever was handed in."""
    knot: list[Any] = []
    knot.append(knot)
    ends = dumps(encoded(knot))

    assert ends == "[" * 12 + '"<list>"' + "]" * 12
    assert len(encoded(list(range(5000)))) == 1000
    assert len(encoded({n: n for n in range(5000)})) == 1000


def test_lone_surrogates_are_no_trouble():
    """File names may hold them; strict UTF-8 could not."""
    assert dumps(encoded("\ud800")).encode() == b'"\\ud800"'


def test_the_last_values_are_kept_where_not_all_fit():
    """As many as fit, in order, with the number of the others."""
    assert last(["aaa", "bb", "c"], size=100) == (['"aaa"', '"bb"', '"c"'], 0)
    assert last(["aaa", "bb", "c"], size=9) == (['"bb"', '"c"'], 1)
    assert last(["aaa", "bb", "c"], size=1) == ([], 3)
