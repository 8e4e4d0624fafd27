"""Results compared bit for bit, against differences that were made on purpose."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxmon.agent.checks.results import (
    DeterminismCheck,
    Deviation,
    HostResult,
    merge_deviations,
)


def found(one: Any, other: Any) -> list[Deviation]:
    return HostResult(jax, one).deviations(HostResult(jax, other))


def next_up(value: float, dtype: Any, steps: int = 1) -> Any:
    """Return the number so many representable ones above a positive *value*."""
    number = np.array([value], dtype)
    bits = number.view(f"u{number.dtype.itemsize}")
    return (bits + np.array(steps, bits.dtype)).view(number.dtype)


def quiet_nan(payload: int) -> Any:
    return np.array([0x7FC00000 + payload], np.uint32).view(np.float32)


SAME = {
    "float32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "not contiguous": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "nan": np.array([np.nan, np.inf, -np.inf], np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "int": np.array([1, -2], np.int32),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j], np.complex64),
    "bfloat16": np.array([1.5], ml_dtypes.bfloat16),
    "float8": np.array([1.5], ml_dtypes.float8_e4m3fn),
    "int4": np.array([3], ml_dtypes.int4),
    "number": 1.5,
    "text": "text",
    "texts": np.array(["a", "b"]),
    "record": np.zeros(2, [("a", "f4"), ("b", "i1")]),
    "objects": np.array([1, "a", None], object),
    "long double": np.array([1, np.nan], np.longdouble),
    "none": None,
    "tree": {"a": [np.ones(2), 3], "b": (None, "x")},
}


@pytest.mark.parametrize("value", SAME.values(), ids=SAME)
def test_the_same_bits_are_no_deviation(value: Any) -> None:
    """Equal bits are the same whatever they mean: a NaN equals itself."""
    copy = value.copy() if isinstance(value, np.ndarray) else value
    assert found(value, copy) == []


@pytest.mark.parametrize(
    "dtype",
    [
        np.float16,
        np.float32,
        np.float64,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
    ],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_a_step_in_each_floating_format_is_one_ulp(dtype: Any) -> None:
    """Three steps away from 1 are three ulp, and the differences are what they are."""
    [deviation] = found(np.array([1.0], dtype), next_up(1.0, dtype, 3))
    far = float(next_up(1.0, dtype, 3)[0]) - 1

    assert deviation.max_ulp == 3
    assert deviation.max_abs == far
    assert deviation.max_relative == far / (1 + far)
    assert (deviation.differing, deviation.size) == (1, 1)
    assert deviation.dtype == np.dtype(dtype).name


def f32(value: float) -> Any:
    return np.array([value], np.float32)


INF = math.inf
UNSIGNED = np.array([[2**64 - 1], [0]], np.uint64)
WIDE = np.array([-(2**63)], np.int64), np.array([2**63 - 1], np.int64)
CONJUGATE = np.array([3 + 4j], np.complex64), np.array([3 - 4j], np.complex64)
CASES: dict[str, tuple[Any, Any, float, float, int | None]] = {
    "zeros of both signs": (f32(0), f32(-0.0), 0, 0, 0),
    "smallest of both signs": (f32(1e-45), f32(-1e-45), 2e-45, 2, 2),
    "nan for a number": (f32(np.nan), f32(1), INF, INF, 0),
    "infinity": (np.array([np.inf]), np.array([1.0]), INF, INF, 0),
    "other nan": (quiet_nan(0), quiet_nan(1), 0, 0, 1),
    "bool": (np.array([True]), np.array([False]), 1, 1, None),
    "uint64": (
        np.array([2**64 - 1], np.uint64),
        np.array([0], np.uint64),
        2.0**64,
        1,
        None,
    ),
    "int64": (*WIDE, 2.0**64, 2, None),
    "int8": (np.array([-128], np.int8), np.array([127], np.int8), 255, 255 / 128, None),
    "complex": (*CONJUGATE, 8, 8 / 5, 0),
    "numbers": (3, 4, 1, 0.25, None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_differences_are_measured(case):
    """The largest differences come out, also where they are wider than the type."""
    one, other, absolute, relative, ulp = case
    [deviation] = found(one, other)

    assert deviation.max_abs == pytest.approx(absolute, abs=1e-45)
    assert deviation.max_relative == pytest.approx(relative)
    assert (deviation.max_ulp is None) == (ulp is None)
    if ulp:
        assert deviation.max_ulp == ulp
    assert deviation.differing == 1


def test_only_the_elements_that_differ_are_counted() -> None:
    """One changed element of a million is one, at its place in the tree."""
    one = np.ones((1000, 1000), np.float32)
    other = one.copy()
    other[3, 4] = 2
    [deviation] = found({"a": [one, one]}, {"a": [one, other]})

    assert deviation.path == "['a'][1]"
    assert (deviation.differing, deviation.size) == (1, 1_000_000)
    assert (deviation.max_abs, deviation.max_relative) == (1, 0.5)
    assert str(deviation) == (
        "output['a'][1]: float32[1000, 1000]: 1 of 1,000,000 elements differ, by "
        "up to 1 (0.5 relative, 8,388,608 ulp)"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array(["a", "b"]), np.array(["a", "c"])),
        (np.array([b"a", b"bcd"]), np.array([b"a", b"bce"])),
        (np.array(["long text", "b"]), np.array(["long text", "c"])),
        (np.array([(1, 2)] * 2, "f4,i1"), np.array([(1, 2), (1, 3)], "f4,i1")),
        (np.array([1, 2], np.longdouble), np.array([1, 3], np.longdouble)),
        (np.array([1, 2j], np.clongdouble), np.array([1, 3j], np.clongdouble)),
    ],
    ids=lambda array: str(array.dtype),
)
def test_what_is_no_number_differs_by_element(one: Any, other: Any) -> None:
    """Texts, records and what exceeds 64 bits are equal or not."""
    [deviation] = found(one, other)

    assert (deviation.differing, deviation.size) == (1, 2)
    assert deviation.max_relative == math.inf
    assert deviation.max_ulp is None


def test_padding_is_no_difference() -> None:
    """Bits that belong to no number may be anything."""
    one = np.array([1], np.longdouble)
    other = one.copy()
    other.view(np.uint8)[-1] = 7

    assert found(one, other) == []


def test_the_order_of_bytes_is_no_matter() -> None:
    """A step in a foreign format is one ulp, too."""
    one, other = (np.array([x], ">f4") for x in (1.0, next_up(1.0, np.float32)[0]))
    [deviation] = found(one, other)

    assert deviation.max_ulp == 1


def test_keys_are_compared_by_their_data() -> None:
    """Arrays of PRNG keys have no NumPy dtype; the numbers inside count."""
    keys = jax.random.key(0), jax.random.key(1)

    assert found(keys[0], jax.random.key(0)) == []
    [deviation] = found(*keys)
    assert deviation.differing == 1


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ({"a": 1}, {"b": 1}, "has a different tree structure"),
        ([1, 2], [1], "has a different tree structure"),
        (np.ones(2), np.ones(3), "became float64[3]"),
        (np.array([1], np.float32), np.array([1], np.float64), "became float64[1]"),
        ("x", "y", "a different value"),
        (np.array([1, "x"], object), np.array([1, "y"], object), "a different value"),
        (1, "1", "became str[]"),
    ],
)
def test_what_cannot_be_compared_is_said(one: Any, other: Any, reason: str) -> None:
    """Another tree, shape or type is a deviation of its own kind, and infinite."""
    [deviation] = found(one, other)

    assert reason in str(deviation)
    assert deviation.max_relative == math.inf


def test_of_several_runs_the_worst_is_kept() -> None:
    """Each leaf appears once, with the figures of the run that deviated most."""
    small, large = found([1.0, 2.0], [1.5, 2.5]), found([1.0, 2.0], [4.0, 2.0])

    assert [one.max_abs for one in merge_deviations(small, large)] == [3, 0.5]
    assert merge_deviations(large, small)[0].max_abs == 3


def test_a_long_list_of_deviations_is_cut_in_words_only() -> None:
    """The text shows ten leaves; the object has them all."""
    deviations = tuple(found([1.0] * 12, [2.0] * 12))
    check = DeterminismCheck("f", 2, 12, deviations)

    assert len(check.deviations) == 12
    assert str(check).endswith("  and 2 more")
    assert not check
    assert str(DeterminismCheck("f", 2, 1)) == "f gave the same output in 2 runs"


def test_jax_arrays_with_shards_are_compared_whole() -> None:
    """An array of JAX and one of NumPy with the same bits differ in nothing."""
    assert found(jnp.arange(3.0), jnp.arange(3.0)) == []
    [deviation] = found(jnp.arange(3.0), jnp.arange(3.0) + 1)
    assert deviation.differing == 3
