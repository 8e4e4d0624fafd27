"""
Reads protocol buffers without their schema: field by field, as they are encoded.

For messages whose few fields of interest are stable and whose generated classes would
be a heavy dependency. See https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from jaxmon.errors import WireError


Value: TypeAlias = "int | memoryview"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_MAX_SHIFT = 63
_MAX = (1 << 64) - 1
# A byte of a number: seven bits of it, and whether more follow.
_BITS, _MORE = 0x7F, 0x80


def fields(message: bytes | memoryview) -> Iterator[tuple[int, Value]]:
    """
    Yield number and value of each field, in order, nothing copied: integers for
    varints, raw bytes of anything else. Groups are rejected. Raises `WireError`:
    *message* is truncated, or no protocol buffer.
    """
    view = memoryview(message)
    position, end = 0, len(view)
    while position < end:
        key, position = varint(view, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = varint(view, position)
            yield number, value
            continue
        if kind == _BYTES:
            length, position = varint(view, position)
        elif kind in _WIDTHS:
            length = _WIDTHS[kind]
        else:
            msg = f"byte {position}: field {number} has wire type {kind}"
            raise WireError(msg)
        if length > end - position:
            msg = f"byte {position}: field {number} is truncated"
            raise WireError(msg)
        yield number, view[position : position + length]
        position += length


class Message:
    """
    The fields of a message by number, as of `fields`. The last of a field counts if it
    is not repeated; one of another type is absent. Raises `WireError`.
    """

    __slots__ = ("_values",)

    def __init__(self, message: bytes | memoryview) -> None:
        self._values = defaultdict[int, list[Value]](list)
        for number, value in fields(message):
            self._values[number].append(value)

    def number(self, field: int) -> int:
        """Return the integer in *field*, 0 without one."""
        numbers = [value for value in self.all(field) if isinstance(value, int)]
        return numbers[-1] if numbers else 0

    def numbers(self, field: int, limit: int = sys.maxsize) -> list[int]:
        """Return the integers in *field*, packed or not; at most *limit* of each."""
        return [number for value in self.all(field) for number in packed(value, limit)]

    def text(self, field: int) -> str:
        """Return the text in *field*, empty without one."""
        return text(self.all(field)[-1]) if self.all(field) else ""

    def message(self, field: int) -> memoryview:
        """Return the message in *field*, an empty one without it."""
        return (self.messages(field) or [memoryview(b"")])[-1]

    def messages(self, field: int) -> list[memoryview]:
        """Return all messages in *field*."""
        return [value for value in self.all(field) if not isinstance(value, int)]

    def all(self, field: int) -> list[Value]:
        """Return all values of *field*."""
        return self._values.get(field, [])


def varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return the integer at *position*, and its end. Raises `WireError` without one."""
    try:
        value = view[position]
        position += 1
        if value < _MORE:
            return value, position
        value &= _BITS
        for shift in range(7, _MAX_SHIFT + 1, 7):
            byte = view[position]
            position += 1
            value |= (byte & _BITS) << shift
            if byte < _MORE:
                return value & _MAX, position
    except IndexError:
        pass
    msg = f"byte {position}: unterminated varint"
    raise WireError(msg)


def encoded(number: int, value: bytes | memoryview) -> bytes:
    """Return field *number* with a string or message as its *value*."""
    key = _number(number << 3 | _BYTES)
    return b"".join((key, _number(len(value)), value))


def packed(value: Value, limit: int = sys.maxsize) -> list[int]:
    """Return at most *limit* numbers of a repeated field, packed or a single one."""
    if isinstance(value, int):
        return [value][:limit]
    numbers: list[int] = []
    position = 0
    while position < len(value) and len(numbers) < limit:
        number, position = varint(value, position)
        numbers.append(number)
    return numbers


def text(value: Value) -> str:
    """Return a string field; what is not UTF-8 is replaced."""
    return "" if isinstance(value, int) else str(value, "utf-8", "replace")


def _number(value: int) -> bytes:
    found = bytearray()
    while value >= _MORE:
        found.append(value & _BITS | _MORE)
        value >>= 7
    found.append(value)
    return bytes(found)
