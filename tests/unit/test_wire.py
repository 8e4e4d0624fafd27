"""Reading protocol buffers without their schema."""

import pytest

from jaxmon.errors import WireError
from jaxmon.host.formats import protobuf as wire
from tests.helpers.traces import field, number


def read(message: bytes) -> list[tuple[int, int | bytes]]:
    return [(n, v if isinstance(v, int) else bytes(v)) for n, v in wire.fields(message)]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**63, 2**64 - 1])
def test_a_number_of_any_size_is_read(value: int) -> None:
    """Variable-length integers of up to 64 bits come back as they were written."""
    assert read(field(3, value)) == [(3, value)]


def test_fields_come_in_order_with_their_bytes() -> None:
    """Strings and fixed-width numbers are raw."""
    message = field(1, b"one") + field(200, 7) + field(1, b"") + b"\x29" + bytes(8)
    message += b"\x35" + bytes(4)

    assert read(message) == [
        (1, b"one"),
        (200, 7),
        (1, b""),
        (5, bytes(8)),
        (6, bytes(4)),
    ]


def test_packed_and_single_numbers_read_alike() -> None:
    """A repeated number may be packed into bytes or stand alone."""
    packed = b"".join(number(n) for n in (1, 300, 5))

    assert wire.packed(memoryview(packed)) == [1, 300, 5]
    assert wire.packed(300) == [300]
    assert wire.packed(memoryview(b"")) == []


def test_text_that_is_no_utf8_is_replaced() -> None:
    """A string field is always a string."""
    assert wire.text(memoryview("ü".encode())) == "ü"
    assert wire.text(memoryview(b"a\xff")) == "a\ufffd"
    assert wire.text(7) == ""


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a",  # a length is missing
        b"\x0a\x05abc",  # shorter than its length
        b"\x08",  # a number is missing
        b"\x08" + b"\xff" * 11,  # a number without end
        b"\x0b",  # a group
        b"\x0f",  # a wire type that does not exist
        b"\x29\x00",  # half a fixed-width number
        b"\x0a" + b"\xff" * 9 + b"\x01",  # a length of 2**64
    ],
)
def test_what_is_no_protocol_buffer_is_refused(message: bytes) -> None:
    """Truncated and impossible input is an error that says where, never a hang."""
    with pytest.raises(WireError, match=r"^byte \d+: "):
        read(message)


def test_what_is_encoded_is_read_back() -> None:
    """Lengths of one byte and of several."""
    for size in (0, 1, 127, 128, 70_000):
        message = wire.encoded(1, b"x" * size) + wire.encoded(300, b"y")

        assert read(message) == [(1, b"x" * size), (300, b"y")]
