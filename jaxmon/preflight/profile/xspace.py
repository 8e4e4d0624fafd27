"""
XLA's trace format, XSpace: planes (devices, the host), their lines, and events.

The parts of the schema that are read, from ``tsl/profiler/protobuf/xplane.proto``:

    XSpace   planes=1
    XPlane   name=2 lines=3 event_metadata=4 stat_metadata=5 stats=6
    XLine    name=2 timestamp_ns=3 events=4 display_name=11
    XEvent   metadata_id=1 offset_ps=2 duration_ps=3 stats=4
    XStat    metadata_id=1 uint64=3 int64=4 str=5 bytes=6 ref=7
    metadata entries   key=1 value=2
    XEventMetadata     name=2 display_name=4 stats=5
    XStatMetadata      name=2

And of the programs in it, from ``xla/service/hlo.proto`` and ``xla/xla_data.proto``;
ids in the stack frame index count from 1:

    HloProto             hlo_module=1
    HloModuleProto       name=1 computations=3 stack_frame_index=17
    HloComputationProto  name=1 instructions=2 id=5 root_id=6
    HloInstructionProto  name=1 opcode=2 shape=3 metadata=7 parameter_number=9 id=35
                         operand_ids=36 called_computation_ids=38
    ShapeProto           dimensions=3 tuple_shapes=4
    OpMetadata           op_name=2 source_file=3 source_line=4 stack_frame_id=15
    StackFrameIndexProto file_names=1 function_names=2 file_locations=3 stack_frames=4
    FileLocation         file_name_id=1 function_name_id=2 line=3
    StackFrame           file_location_id=1 parent_frame_id=2
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

from jaxmon.host.formats import protobuf as wire


# The planes with the programs, and with when the recording began and ended.
_PROGRAMS, _RECORDING = "/host:metadata", "Task Environment"

# Names of stats that are read.
_OP, _MODULE, _PROGRAM = "hlo_op", "hlo_module", "program_id"
_OF_EVENTS = (_OP, _MODULE, _PROGRAM)
_STATED = ("tf_op", "source", "source_stack")
_HLO = "Hlo Proto"
_STARTED, _STOPPED = "profile_start_time", "profile_stop_time"
# On GPUs: nested operations, the innermost last.
_NESTED = "::"

_Stats: TypeAlias = "dict[str, int | str | memoryview]"


class Stated(NamedTuple):
    """
    What a TPU's runtime says: *path* of functions, scopes and primitive, *source*, and
    *stack* with a line ``file:line:column`` for each frame.
    """

    path: str
    source: str
    stack: str


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """
    Something that took time, picoseconds from its line's timestamp; *op*, *module* and
    *program* are XLA's names and number, if it is an operation.
    """

    name: str
    start: int
    duration: int
    op: str | None = None
    module: str | None = None
    program: int | None = None
    stated: Stated | None = None


@dataclass(frozen=True, slots=True)
class TraceLine:
    """A thread or a stream: its *timestamp*, in nanoseconds, is zero of its events."""

    name: str
    timestamp: int
    events: tuple[TraceEvent, ...]


@dataclass(frozen=True, slots=True)
class Plane:
    """A device (``/device:GPU:0``) or the host (``/host:CPU``)."""

    name: str
    lines: tuple[TraceLine, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """A trace: planes, each ``HloProto`` by XLA's number, and seconds, if known."""

    planes: tuple[Plane, ...]
    programs: dict[int, memoryview] = field(default_factory=dict)
    seconds: float | None = None


def parse(space: bytes) -> Space:
    """Return the trace in *space*; 3 µs for each event. Raises `WireError`."""
    planes: list[Plane] = []
    programs: dict[int, memoryview] = {}
    seconds = None
    for message in wire.Message(space).messages(1):
        plane = _Plane(message)
        if plane.name == _PROGRAMS:
            programs.update(plane.programs())
        elif plane.name == _RECORDING:
            seconds = plane.seconds()
        else:
            planes.append(Plane(plane.name, tuple(plane.lines())))
    return Space(tuple(planes), programs, seconds)


class _Kind(NamedTuple):
    """What events of one kind have in common."""

    name: str
    stats: _Stats
    stated: Stated | None


_NO_KIND = _Kind("", {}, None)


class _Plane:
    def __init__(self, message: memoryview) -> None:
        found = wire.Message(message)
        self.name = found.text(2)
        self._lines, self._stats = found.messages(3), found.messages(6)
        entries = map(wire.Message, found.messages(4))
        self._events = {
            entry.number(1): wire.Message(entry.message(2)) for entry in entries
        }
        entries = map(wire.Message, found.messages(5))
        self._texts = {
            entry.number(1): wire.Message(entry.message(2)).text(2) for entry in entries
        }
        self._of_events = self._ids(*_OF_EVENTS)

    def programs(self) -> Iterator[tuple[int, memoryview]]:
        """Yield number and ``HloProto`` of each program."""
        wanted = self._ids(_HLO, _PROGRAM)
        for key, metadata in self._events.items():
            stats = self._read(metadata.messages(5), wanted)
            number, proto = stats.get(_PROGRAM, key), stats.get(_HLO)
            if isinstance(number, int) and isinstance(proto, memoryview):
                yield number, proto

    def seconds(self) -> float | None:
        """Return how long was recorded."""
        stats = self._read(self._stats, self._ids(_STARTED, _STOPPED))
        started, stopped = stats.get(_STARTED), stats.get(_STOPPED)
        if isinstance(started, int) and isinstance(stopped, int) and started < stopped:
            return (stopped - started) / 1e9
        return None

    def lines(self) -> Iterator[TraceLine]:
        """Yield its lines."""
        kinds = {key: self._kind(event) for key, event in self._events.items()}
        for message in map(wire.Message, self._lines):
            events = [self._event(event, kinds) for event in message.messages(4)]
            events.sort(key=lambda event: (event.start, -event.duration))
            name = message.text(11) or message.text(2)
            yield TraceLine(name, message.number(3), tuple(events))

    def _kind(self, metadata: wire.Message) -> _Kind:
        stats = metadata.messages(5)
        found = self._read(stats, self._ids(*_STATED))
        return _Kind(
            metadata.text(4) or metadata.text(2),
            self._read(stats, self._of_events),
            Stated(*(_text(found, name) or "" for name in _STATED)) if found else None,
        )

    def _event(self, message: memoryview, kinds: dict[int, _Kind]) -> TraceEvent:
        key = start = duration = 0
        stats_of_event: list[memoryview] = []
        for number, value in wire.fields(message):
            if number == 4 and isinstance(value, memoryview):  # noqa: PLR2004
                stats_of_event.append(value)
            elif not isinstance(value, int):
                continue
            elif number == 1:
                key = value
            elif number == 2:  # noqa: PLR2004
                start = value
            elif number == 3:  # noqa: PLR2004
                duration = value
        name, common, stated = kinds.get(key, _NO_KIND)
        stats = {**common, **self._read(stats_of_event, self._of_events)}
        program = stats.get(_PROGRAM)
        op = _text(stats, _OP)
        return TraceEvent(
            name,
            start,
            duration,
            op if op is None else op.rpartition(_NESTED)[2],
            _text(stats, _MODULE),
            program if isinstance(program, int) else None,
            stated,
        )

    def _ids(self, *names: str) -> dict[int, str]:
        """Return those *names* that stats here have, by their ids."""
        return {key: name for key, name in self._texts.items() if name in names}

    def _read(self, stats: list[memoryview], wanted: dict[int, str]) -> _Stats:
        found: _Stats = {}
        for stat in stats:
            name = None
            for number, value in wire.fields(stat):
                if number == 1 and isinstance(value, int):
                    name = wanted.get(value)
                if name is None:
                    break
                if number in (3, 4, 6):
                    found[name] = value
                elif number == 5:  # noqa: PLR2004
                    found[name] = wire.text(value)
                elif number == 7 and isinstance(value, int):  # noqa: PLR2004
                    found[name] = self._texts.get(value, "")
        return found


def _text(stats: _Stats, name: str) -> str | None:
    value = stats.get(name)
    return value if isinstance(value, str) and value else None


_MOST_FRAMES = 200
_MOST_DIMENSIONS, _MOST_ELEMENTS = 32, 1 << 62


class Frame(NamedTuple):
    """A source location; the function is ``""`` if unknown."""

    file: str
    line: int
    function: str


class Instruction(NamedTuple):
    """
    An operation: a name unique in its program, JAX's *path*, the *stack* that it comes
    from or the line *at*, ids of operands and *called* computations, and which
    *parameter* of its computation it is, if any.
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
    """Instructions in an order in which they can run, read when they are used."""

    def __init__(self, message: memoryview) -> None:
        found = wire.Message(message)
        self.id, self.root = found.number(5), found.number(6)
        self._messages = found.messages(2)

    def names(self) -> Iterator[str]:
        """Yield the names of its instructions, at a fraction of the cost of reading."""
        if not self._messages:  # they are from text
            yield from (of.name for of in self.instructions.values())
        for message in self._messages:
            for number, value in wire.fields(message):
                if number == 1:
                    yield wire.text(value)
                    break

    @cached_property
    def instructions(self) -> dict[int, Instruction]:
        """The instructions by id."""
        return dict(_instruction(message) for message in self._messages)

    @cached_property
    def users(self) -> dict[int, list[int]]:
        """The instructions that use the result of each."""
        found: dict[int, list[int]] = {}
        for user, instruction in self.instructions.items():
            for operand in instruction.operands:
                found.setdefault(operand, []).append(user)
        return found


class HloProgram:
    """A program; some milliseconds for each megabyte. Raises `WireError`."""

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
    found = wire.Message(shape)
    arrays = [_product(wire.Message(part)) for part in found.messages(4)]
    return sum(arrays) or _product(found)


def _product(shape: wire.Message) -> int:
    dimensions = shape.numbers(3, _MOST_DIMENSIONS)[:_MOST_DIMENSIONS]
    return min(math.prod(dimensions), _MOST_ELEMENTS)


def _at(names: list[str], key: int) -> str:
    return names[key - 1] if 0 < key <= len(names) else ""
