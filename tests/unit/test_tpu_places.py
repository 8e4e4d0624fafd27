"""Which chip a number of the runtime means."""

import pytest

from jaxmon_exporter.collectors.tpu.collector import CorePlace, cores, numbered, spread


@pytest.mark.parametrize(
    ("keys", "total", "found"),
    [
        ([("a", 0), ("a", 1)], 2, [0, 1]),
        ([("a", 1)], 2, [1]),  # a part of the host
        ([("a", 4), ("a", 5), ("a", 6), ("a", 7)], 4, [0, 1, 2, 3]),  # second host
        ([("a", 5), ("b", 4)], 2, [1, 0]),
        ([("a", 0), ("b", 0)], 2, [0, 1]),  # each for itself, all of the host
        ([("b", 1), ("b", 0), ("a", 0), ("a", 1)], 4, [1, 0, 2, 3]),
        ([("a", 0), ("b", 0)], 4, None),  # each for itself, and others are silent
        ([("a", 0), ("a", 4)], 4, None),  # cores of two hosts
        ([("a", -1)], 4, None),
        ([("a", 0)], 0, None),
        ([], 4, None),
    ],
)
def test_numbers_of_a_host(keys, total, found):
    """What cannot be decided is not guessed."""
    expected = {} if found is None else dict(zip(keys, found, strict=True))
    assert numbered(keys, total) == expected


def test_cores_follow_each_other_on_a_chip() -> None:
    """Two cores of a chip have neighbouring numbers."""
    found = cores([("a", number) for number in range(4)], 2, 2)
    assert list(found.values()) == [
        CorePlace(0, 0),
        CorePlace(0, 1),
        CorePlace(1, 0),
        CorePlace(1, 1),
    ]


def test_values_of_chips_hold_for_their_cores() -> None:
    """As many values as chips, or as cores, in order; anything else says nothing."""
    places = [CorePlace(1, 1), CorePlace(0, 0), CorePlace(0, 1), CorePlace(1, 0)]
    assert [value for _, value in spread({8: 2.0, 0: 1.0}, places, 2)] == [1, 1, 2, 2]
    each = spread({3: 4.0, 2: 3.0, 1: 2.0, 0: 1.0}, places, 2)
    assert dict(each)[CorePlace(1, 0)] == 3
    assert spread({0: 1.0}, places, 2) == []
    assert spread({}, [], 2) == []
