"""
An optimised XLA program, as far as the origin of its operations is concerned.

The parts of the schema that are read, from ``xla/service/hlo.proto`` and
``xla/xla_data.proto``:

    HloProto             hlo_module=1
    HloModuleProto       name=1 computations=3 stack_frame_index=17
    HloComputationProto  name=1 instructions=2 id=5 root_id=6
    HloInstructionProto  name=1 opcode=2 shape=3 metadata=7
                         parameter_number=9 id=35 operand_ids=36
                         called_computation_ids=38
    ShapeProto           dimensions=3 tuple_shapes=4
    OpMetadata           op_name=2 source_file=3 source_line=4 stack_frame_id=15
    StackFrameIndexProto file_names=1 function_names=2 file_locations=3
                         stack_frames=4
    FileLocation         file_name_id=1 function_name_id=2 line=3
    StackFrame           file_location_id=1 parent_frame_id=2

Ids in the stack frame index count from 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from jaxmon.host.formats import protobuf as wire


_MOST_FRAMES = 200
_MOST_DIMENSIONS, _MOST_ELEMENTS = 32, 1 << 62


class Frame(NamedTuple):
    """A source location; the function is ``""`` if unknown."""

    file: str
    line: int
    function: str


class Instruction(NamedTuple):
    """
    An operation.

    Attributes:
        name: unique in its program.
        opcode: what it does, such as ``dot``.
        elements: number of elements of its result.
        path: JAX's name: functions, scopes and primitive, separated by ``/``.
        stack: id of the stack that it comes from, 0 if unknown.
        at: the line that it comes from, if only that is known.
        operands: ids of instructions of its computation.
        called: ids of computations.
        parameter: which parameter of its computation it is, if it is one.
    """

    name: str
    opcode: str
    elements: int
    path: str
    stack: int
    at: Frame | None
    operands: tuple[int, ...]
    called: tuple[int, ...]
    parameter: int = 0


class Computation:
    """
    Instructions in an order in which they can run. They are read when they are used.

    Attributes:
        root: id of the instruction whose result is the computation's.
    """

    def __init__(self, message: memoryview) -> None:
        self.id = self.root = 0
        self._instructions: list[memoryview] = []
        for number, value in wire.fields(message):
            if number == 2 and isinstance(value, memoryview):  # noqa: PLR2004 - field numbers, here and below: see above
                self._instructions.append(value)
            elif number == 5 and isinstance(value, int):  # noqa: PLR2004
                self.id = value
            elif number == 6 and isinstance(value, int):  # noqa: PLR2004
                self.root = value

    def names(self) -> Iterator[str]:
        """Yield the names of its instructions, at a fraction of the cost of reading."""
        for message in self._instructions:
            for number, value in wire.fields(message):
                if number == 1:
                    yield wire.text(value)
                    break

    @cached_property
    def instructions(self) -> dict[int, Instruction]:
        """The instructions by id."""
        return dict(_instruction(message) for message in self._instructions)


class HloProgram:
    """
    A program. Takes some milliseconds for each megabyte.

    Args:
        proto: an ``HloProto``.

    Raises:
        WireError: it is none. So do all methods.
    """

    def __init__(self, proto: memoryview) -> None:
        self.name = ""
        self._computations: dict[int, Computation] = {}
        self._index = memoryview(b"")
        for field, module in wire.fields(proto):
            if field != 1 or isinstance(module, int):
                continue
            for number, value in wire.fields(module):
                if number == 1:
                    self.name = wire.text(value)
                elif number == 3 and isinstance(value, memoryview):  # noqa: PLR2004
                    computation = Computation(value)
                    self._computations[computation.id] = computation
                elif number == 17 and isinstance(value, memoryview):  # noqa: PLR2004
                    self._index = value

    def find(self, name: str) -> tuple[Computation, int] | None:
        """Return the computation that has the instruction *name*, and its id."""
        computation = self._homes.get(name)
        if computation is None:
            return None
        for key, instruction in computation.instructions.items():
            if instruction.name == name:
                return computation, key
        return None

    def computations(self) -> Iterator[Computation]:
        """Yield all computations."""
        yield from self._computations.values()

    def called(self, instruction: Instruction) -> Iterator[Computation]:
        """Yield the computations that *instruction* calls, those of a fusion too."""
        for key in instruction.called:
            computation = self._computations.get(key)
            if computation is not None:
                yield computation

    def stack(self, instruction: Instruction) -> list[Frame]:
        """Return where *instruction* comes from, innermost first; empty if unknown."""
        found: list[Frame] = []
        locations, parents = self._frames
        key = instruction.stack
        while 0 < key <= len(parents) and len(found) < _MOST_FRAMES:
            location, key = parents[key - 1]
            if 0 < location <= len(locations):
                found.append(locations[location - 1])
        if not found and instruction.at is not None:
            return [instruction.at]
        return found

    @cached_property
    def _homes(self) -> dict[str, Computation]:
        return {
            name: computation
            for computation in self._computations.values()
            for name in computation.names()
        }

    @cached_property
    def _frames(self) -> tuple[list[Frame], list[tuple[int, int]]]:
        """Return the locations, and location and parent of each frame."""
        files: list[str] = []
        functions: list[str] = []
        places: list[tuple[int, int, int]] = []
        parents: list[tuple[int, int]] = []
        for number, value in wire.fields(self._index):
            if isinstance(value, int):
                continue
            if number == 1:
                files.append(wire.text(value))
            elif number == 2:  # noqa: PLR2004
                functions.append(wire.text(value))
            elif number == 3:  # noqa: PLR2004
                file, function, line = _numbers(value, 1, 2, 3)
                places.append((file, function, line))
            elif number == 4:  # noqa: PLR2004
                location, parent = _numbers(value, 1, 2)
                parents.append((location, parent))
        locations = [
            Frame(_at(files, file), line, _at(functions, function))
            for file, function, line in places
        ]
        return locations, parents


def _instruction(message: memoryview) -> tuple[int, Instruction]:
    """Return id and instruction."""
    key = stack = elements = parameter = 0
    name = opcode = path = ""
    at = None
    operands: list[int] = []
    called: list[int] = []
    for number, value in wire.fields(message):
        if number == 1:
            name = wire.text(value)
        elif number == 2:  # noqa: PLR2004
            opcode = wire.text(value)
        elif number == 3 and isinstance(value, memoryview):  # noqa: PLR2004
            elements = _elements(value)
        elif number == 7 and isinstance(value, memoryview):  # noqa: PLR2004
            path, stack, at = _metadata(value)
        elif number == 9 and isinstance(value, int):  # noqa: PLR2004
            parameter = value
        elif number == 35 and isinstance(value, int):  # noqa: PLR2004
            key = value
        elif number == 36:  # noqa: PLR2004
            operands += wire.packed(value)
        elif number == 38:  # noqa: PLR2004
            called += wire.packed(value)
    found = Instruction(
        name,
        opcode,
        elements,
        path,
        stack,
        at,
        tuple(operands),
        tuple(called),
        parameter,
    )
    return key, found


def _elements(shape: memoryview) -> int:
    """Return the number of elements of an array, or of all arrays of a tuple."""
    dimensions: list[int] = []
    parts = 0
    for number, value in wire.fields(shape):
        if number == 3:  # noqa: PLR2004
            dimensions += wire.packed(value, _MOST_DIMENSIONS)
        elif number == 4 and isinstance(value, memoryview):  # noqa: PLR2004
            parts += _array_elements(value)
    return parts or _product(dimensions)


def _array_elements(shape: memoryview) -> int:
    dimensions: list[int] = []
    for number, value in wire.fields(shape):
        if number == 3:  # noqa: PLR2004
            dimensions += wire.packed(value, _MOST_DIMENSIONS)
    return _product(dimensions)


def _product(dimensions: list[int]) -> int:
    return min(math.prod(dimensions[:_MOST_DIMENSIONS]), _MOST_ELEMENTS)


def _metadata(message: memoryview) -> tuple[str, int, Frame | None]:
    path = file = ""
    line = stack = 0
    for number, value in wire.fields(message):
        if number == 2:  # noqa: PLR2004
            path = wire.text(value)
        elif number == 3:  # noqa: PLR2004
            file = wire.text(value)
        elif number == 4 and isinstance(value, int):  # noqa: PLR2004
            line = value
        elif number == 15 and isinstance(value, int):  # noqa: PLR2004
            stack = value
    return path, stack, Frame(file, line, "") if file else None


def _numbers(message: memoryview, *wanted: int) -> list[int]:
    """Return the *wanted* fields of a message of numbers."""
    found = {
        number: value
        for number, value in wire.fields(message)
        if isinstance(value, int)
    }
    return [found.get(number, 0) for number in wanted]


def _at(names: list[str], key: int) -> str:
    return names[key - 1] if 0 < key <= len(names) else ""
