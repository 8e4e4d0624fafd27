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
        found = wire.Message(message)
        self.id, self.root = found.number(5), found.number(6)
        self._instructions = found.messages(2)

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

    Raises:
        WireError: it is none. So do all methods.
    """

    def __init__(self, proto: memoryview) -> None:
        module = wire.Message(wire.Message(proto).message(1))
        self.name = module.text(1)
        parts = map(Computation, module.messages(3))
        self._computations = {part.id: part for part in parts}
        self._index = module.message(17)

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
        index = wire.Message(self._index)
        files, functions = (
            [wire.text(name) for name in index.messages(field)] for field in (1, 2)
        )
        places = map(wire.Message, index.messages(3))
        frames = map(wire.Message, index.messages(4))
        locations = [
            Frame(
                _at(files, place.number(1)),
                place.number(3),
                _at(functions, place.number(2)),
            )
            for place in places
        ]
        return locations, [(frame.number(1), frame.number(2)) for frame in frames]


def _instruction(message: memoryview) -> tuple[int, Instruction]:
    """Return id and instruction."""
    found = wire.Message(message)
    metadata = wire.Message(found.message(7))
    file = metadata.text(3)
    return found.number(35), Instruction(
        found.text(1),
        found.text(2),
        _elements(found.message(3)),
        metadata.text(2),
        metadata.number(15),
        Frame(file, metadata.number(4), "") if file else None,
        tuple(found.numbers(36)),
        tuple(found.numbers(38)),
        found.number(9),
    )


def _elements(shape: memoryview) -> int:
    """Return the number of elements of an array, or of all arrays of a tuple."""
    found = wire.Message(shape)
    arrays = [_product(wire.Message(part)) for part in found.messages(4)]
    return sum(arrays) or _product(found)


def _product(shape: wire.Message) -> int:
    dimensions = shape.numbers(3, _MOST_DIMENSIONS)[:_MOST_DIMENSIONS]
    return min(math.prod(dimensions), _MOST_ELEMENTS)


def _at(names: list[str], key: int) -> str:
    return names[key - 1] if 0 < key <= len(names) else ""
