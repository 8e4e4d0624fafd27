"""Writes protocol buffers, for tests of what reads them."""

from __future__ import annotations

import struct


def number(value: int) -> bytes:
    """Return *value* as a variable-length integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(key: int, value: int | bytes | str) -> bytes:
    """Return a field: a number, or bytes with their length."""
    if isinstance(value, int):
        return number(key << 3) + number(value)
    raw = value.encode() if isinstance(value, str) else value
    return number(key << 3 | 2) + number(len(raw)) + raw


def signed(key: int, value: int) -> bytes:
    """Return a field of a number that may be negative: as ten bytes, then."""
    return number(key << 3) + number(value % (1 << 64))


def double(key: int, value: float) -> bytes:
    """Return a field of a floating-point number."""
    return number(key << 3 | 1) + struct.pack("<d", value)


def packed(key: int, values: list[int]) -> bytes:
    """Return a repeated field of numbers."""
    return field(key, b"".join(map(number, values)))
