"""Traces for tests, made of their parts, and the protocol buffers that hold them."""

import struct
from collections.abc import Mapping, Sequence

from jaxmon.preflight.profile.xspace import Plane, TraceEvent, TraceLine


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


MS = 10**9

# A stack, innermost first: file, line, function.
Stack = Sequence[tuple[str, int, str]]


def op(
    name: str, start: int, duration: int, module: str | None = "jit_f", program: int = 1
) -> TraceEvent:
    """Return an operation; times are milliseconds."""
    return TraceEvent(
        f"kernel of {name}", start * MS, duration * MS, name, module, program
    )


def other(name: str, start: int, duration: int) -> TraceEvent:
    """Return an event that is none."""
    return TraceEvent(name, start * MS, duration * MS)


def plane(
    *events: TraceEvent, name: str = "/device:GPU:0", line: str = "Stream"
) -> Plane:
    """Return a plane with one line of *events*."""
    ordered = tuple(sorted(events, key=lambda one: (one.start, -one.duration)))
    return Plane(name, (TraceLine(line, 0, ordered),))


class Code:
    """
    Writes a program.

    Args:
        stacks: by name, to refer to them.
    """

    def __init__(self, stacks: Mapping[str, Stack]) -> None:
        self._index = b""
        self._stacks: dict[str, int] = {}
        self._computations: list[bytes] = []
        self._ids: dict[str, int] = {}
        files: list[str] = []
        functions: list[str] = []
        frames = 0
        for name, stack in stacks.items():
            parent = 0
            for file, line, function in reversed(stack):
                files.append(file)
                functions.append(function)
                frames += 1
                place = field(1, frames) + field(2, frames) + field(3, line)
                self._index += field(3, place)
                self._index += field(4, field(1, frames) + field(2, parent))
                parent = frames
            self._stacks[name] = parent
        self._index = b"".join(field(1, one) for one in files) + self._index
        self._index = b"".join(field(2, one) for one in functions) + self._index

    def instruction(
        self,
        name: str,
        opcode: str,
        *operands: str,
        stack: str | None = None,
        path: str = "",
        shape: Sequence[int] = (),
        calls: int | None = None,
        parameter: int | None = None,
        at: tuple[str, int] | None = None,
    ) -> bytes:
        """Return an instruction of the computation being written."""
        key = self._ids.setdefault(name, len(self._ids) + 1)
        metadata = field(2, path)
        if stack is not None:
            metadata += field(15, self._stacks[stack])
        if at is not None:
            metadata += field(3, at[0]) + field(4, at[1])
        found = field(1, name) + field(2, opcode) + field(3, packed(3, list(shape)))
        found += field(7, metadata) + field(35, key)
        found += packed(36, [self._ids[one] for one in operands])
        if calls is not None:
            found += packed(38, [calls])
        if parameter is not None:
            found += field(9, parameter)
        return found

    def computation(self, *instructions: bytes) -> int:
        """Add a computation, and return its id."""
        key = len(self._computations) + 100
        content = b"".join(field(2, one) for one in instructions)
        self._computations.append(content + field(5, key))
        return key

    def proto(self, name: str = "jit_f") -> memoryview:
        """Return the program."""
        computations = b"".join(field(3, one) for one in self._computations)
        module = field(1, name) + computations + field(17, self._index)
        return memoryview(field(1, module))
