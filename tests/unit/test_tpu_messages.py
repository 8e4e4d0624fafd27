"""Messages of the TPU runtime, as they may come."""

import pytest

from jaxmon_exporter.collectors.tpu import messages as tpu_messages
from jaxmon_exporter.collectors.tpu.messages import BucketCounts, measures
from tests.helpers.traces import double, field, packed


def reply(*of: bytes) -> bytes:
    return field(1, b"".join(field(3, one) for one in of))


def told(bounds: bytes, counts: list[int]) -> BucketCounts:
    text = field(1, sum(counts)) + double(2, 5.0) + field(6, bounds)
    (measure,) = measures(reply(field(5, text + packed(7, counts))))
    assert isinstance(measure.value, BucketCounts)
    return measure.value


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (field(2, field(1, 3) + double(2, 2.0) + double(3, 10.0)), (10, 20, 40, 80)),
        (field(4, field(1, 2) + double(2, 5.0) + double(3, 1.0)), (1, 6, 11)),
        (field(3, double(1, 1.0) + double(1, 9.0)), (1, 9)),
        (field(3, field(1, double(1, 1.0)[1:] + double(1, 9.0)[1:])), (1, 9)),
    ],
)
def test_bounds_of_each_kind(bounds: bytes, expected: tuple[float, ...]) -> None:
    """Exponential, linear and explicit buckets; doubles one by one, or packed."""
    assert told(bounds, [1, 2]).bounds == expected


@pytest.mark.parametrize(
    "bounds",
    [
        b"",
        field(2, field(1, 1 << 31) + double(2, 2.0) + double(3, 1.0)),  # too many
        field(2, field(1, 5) + double(2, 1e200) + double(3, 1.0)),  # infinite
        field(2, field(1, 5) + double(2, 0.5) + double(3, 1.0)),  # falling
        field(2, field(1, 5) + double(2, float("nan")) + double(3, 1.0)),
        field(3, double(1, 2.0) + double(1, 1.0)),
    ],
)
def test_impossible_bounds_leave_sum_and_count(bounds: bytes) -> None:
    """Buckets that cannot be are none; what is known besides is kept."""
    found = told(bounds, [1, 2])
    assert (found.count, found.mean, found.bounds) == (3, 5.0, ())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_not_a_number_is_no_figure(value: float) -> None:
    """A page never has one."""
    assert measures(reply(field(3, double(1, value)))) == []
    assert measures(reply(field(5, field(1, 2) + double(2, value)))) == []


def test_measures_without_a_number_are_skipped() -> None:
    """Texts, summaries, and what later releases may add."""
    odd = (field(3, field(3, "text")), field(6, b""), field(99, b"new"), b"")
    assert measures(reply(*odd)) == []


def test_long_names_do_not_fit() -> None:
    """All names that are asked for have a length of one byte."""
    from jaxmon_exporter.collectors.tpu.runtimes import NAMES

    assert max(map(len, NAMES)) <= tpu_messages.LONGEST_NAME
    assert len(set(NAMES)) == len(NAMES)
