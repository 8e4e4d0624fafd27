"""The operations of a trace: the time of each, and where it comes from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from jaxmon.errors import WireError
from jaxmon.host import sources
from jaxmon.preflight.profile import origins as paths
from jaxmon.preflight.profile import xspace
from jaxmon.preflight.profile.origins import (
    NOWHERE,
    CodePlace,
    Origin,
    Origins,
    place_in,
)


_OPS_LINE = "XLA Ops"
_DEVICE = "/device:"
_PS = 1e12


@dataclass(frozen=True, slots=True)
class Operation:
    """
    An operation of *program*, as XLA calls both: how often it ran, on all devices, and
    the seconds in itself, without nested ones.
    """

    program: str
    name: str
    count: int
    seconds: float
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class Profile:
    """
    What the devices did: operations, the most time first, summed over devices; seconds
    *recorded*, and *busy* with at least one of them, on average; and how many programs
    ran *without_programs*, of which the trace has no code.
    """

    operations: tuple[Operation, ...]
    recorded: float | None = None
    busy: float = 0.0
    devices: int = 0
    without_programs: int = 0

    @property
    def seconds(self) -> float:
        """Of all operations."""
        return sum(operation.seconds for operation in self.operations)

    @property
    def located(self) -> float:
        """Seconds of those that come from lines of the program."""
        return sum(
            operation.seconds
            for operation in self.operations
            if operation.origin.place is not None
            and operation.origin.place.tier == sources.USER
        )

    @property
    def without_lines(self) -> bool:
        """Whether no line is known, for want of programs."""
        return self.without_programs > 0 and all(
            operation.origin.place is None for operation in self.operations
        )


def read(space: xspace.Space, *, seconds: float | None = None) -> Profile:
    """
    Return the operations of the trace *space*, as long as *seconds*: what it says is
    too much if copying large programs took long. Malformed programs are ignored.
    """
    spent = defaultdict[tuple[int | None, str, str], float](float)
    counts = defaultdict[tuple[int | None, str, str], int](int)
    stated: dict[tuple[int | None, str, str], xspace.Stated] = {}
    busy = []
    for plane in _devices(space.planes):
        spans: list[tuple[int, int]] = []
        for line in _with_operations(plane):
            zero = line.timestamp * 1000
            for event, left in _own_time(line):
                key = event.program, event.module or "", event.op or event.name
                spent[key] += left / _PS
                counts[key] += 1
                if event.stated is not None:
                    stated[key] = event.stated
                spans.append((zero + event.start, zero + _end(event)))
        if spans:
            busy.append(_union(spans) / _PS)
    programs = _Programs(space)
    found = [
        Operation(
            programs.name(number, module),
            name,
            counts[key],
            own_seconds,
            programs.origin(number, name, stated.get(key)),
        )
        for key, own_seconds in spent.items()
        for number, module, name in (key,)
    ]
    found.sort(
        key=lambda operation: (-operation.seconds, operation.program, operation.name)
    )
    return Profile(
        tuple(found),
        space.seconds if seconds is None else seconds,
        sum(busy) / len(busy) if busy else 0.0,
        len(busy),
        len({key[:2] for key in spent if not programs.has(key[0])}),
    )


class _Programs:
    """The programs of a trace, each read when an operation of it is looked up."""

    def __init__(self, space: xspace.Space) -> None:
        self._protos = space.programs
        self._read: dict[int, tuple[str, Origins] | None] = {}

    def has(self, number: int | None) -> bool:
        """Return whether the program *number* can be read."""
        return self._program(number) is not None

    def name(self, number: int | None, module: str) -> str:
        """Return the name of a program, *module* if the trace says it."""
        program = None if module else self._program(number)
        return module if program is None else program[0]

    def origin(
        self, number: int | None, name: str, stated: xspace.Stated | None
    ) -> Origin:
        """Return where the operation *name* of the program *number* comes from."""
        origin, program = NOWHERE, self._program(number)
        if program is not None:
            try:
                origin = program[1].of(name)
            except WireError:
                origin = NOWHERE
        if origin.place is None and stated is not None:
            return Origin(place_in(_frames(stated)), paths.read(stated.path))
        return origin

    def _program(self, number: int | None) -> tuple[str, Origins] | None:
        if number is None or number not in self._protos:
            return None
        if number not in self._read:
            try:
                program = xspace.HloProgram(self._protos[number])
                self._read[number] = program.name, Origins(program)
            except WireError:
                self._read[number] = None
        return self._read[number]


def _devices(planes: Iterable[xspace.Plane]) -> list[xspace.Plane]:
    """Return the planes of devices, or of the host if none of them has operations."""
    devices = [plane for plane in planes if plane.name.startswith(_DEVICE)]
    if any(_own_time(line) for plane in devices for line in _with_operations(plane)):
        return devices
    return [plane for plane in planes if not plane.name.startswith(_DEVICE)]


def _with_operations(plane: xspace.Plane) -> tuple[xspace.TraceLine, ...]:
    """Return lines with each operation once: a TPU repeats them by step and scope."""
    named = tuple(line for line in plane.lines if line.name == _OPS_LINE)
    return named or plane.lines


def _own_time(line: xspace.TraceLine) -> list[tuple[xspace.TraceEvent, int]]:
    """Return each operation with its duration less that of operations inside it."""
    everything = line.name == _OPS_LINE
    events = [event for event in line.events if everything or event.op is not None]
    left = [event.duration for event in events]
    open_: list[int] = []
    for index, event in enumerate(events):
        while open_ and _end(events[open_[-1]]) <= event.start:
            open_.pop()
        if open_ and _end(events[open_[-1]]) >= _end(event):
            left[open_[-1]] -= event.duration
        open_.append(index)
    return list(zip(events, left, strict=True))


def _end(event: xspace.TraceEvent) -> int:
    return event.start + event.duration


def _union(spans: Iterable[tuple[int, int]]) -> int:
    covered = until = 0
    for begin, end in sorted(spans):
        covered += max(end - max(begin, until), 0)
        until = max(until, end)
    return covered


def _frames(stated: xspace.Stated) -> list[xspace.Frame]:
    frames = list(_parsed(stated.stack.splitlines()))
    innermost = list(_parsed([stated.source]))
    # The innermost frame is stated for itself, and seen at either end of the stack.
    if innermost and frames and frames[0][:2] != innermost[0][:2]:
        frames.reverse()
    return frames or innermost


def _parsed(lines: Iterable[str]) -> Iterator[xspace.Frame]:
    for line in lines:
        parts = line.strip().split(":")
        numbers = [part for part in parts[1:] if part.isdecimal()]
        if parts[0] and numbers:
            yield xspace.Frame(parts[0], int(numbers[0]), "")


By: TypeAlias = Literal["line", "function", "scope", "op"]
BY: tuple[By, ...] = ("line", "function", "scope", "op")

# As many groups are enough as have so much of the time together, and those that have so
# much each.
_ENOUGH, _WORTH = 0.9, 0.01


class Kind(NamedTuple):
    """JAX's primitive, and the function of a library that it is in."""

    primitive: str
    library: str


@dataclass
class Group:
    """
    Operations of a *scope*, or a library's function: a name if there is one, count,
    seconds, those of a *backward* pass or *recomputed* in it, and by function, kind and
    line.
    """

    scope: str = ""
    operation: str = ""
    count: int = 0
    seconds: float = 0.0
    backward: float = 0.0
    recomputed: float = 0.0
    functions: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kinds: dict[Kind, float] = field(default_factory=lambda: defaultdict(float))
    places: dict[CodePlace | None, float] = field(
        default_factory=lambda: defaultdict(float)
    )

    @property
    def function(self) -> str:
        """The jitted function that most of the time belongs to."""
        return max(self.functions, key=self.functions.__getitem__, default="")

    @property
    def kind(self) -> Kind:
        """What takes most of the time."""
        return max(self.kinds, key=self.kinds.__getitem__, default=Kind("", ""))

    @property
    def place(self) -> CodePlace | None:
        """The line of most of the time, `None` if it is unknown."""
        return max(self.places, key=self.places.__getitem__, default=None)

    def add(self, operation: Operation, function: str) -> None:
        """Add *operation*."""
        origin = operation.origin
        self.count += operation.count
        self.seconds += operation.seconds
        self.backward += operation.seconds if origin.path.backward else 0.0
        self.recomputed += operation.seconds if origin.path.recomputed else 0.0
        place = origin.place
        self.places[place and place._replace(library="")] += operation.seconds
        self.functions[function] += operation.seconds
        kind = Kind(origin.path.primitive, _library(operation))
        self.kinds[kind] += operation.seconds


def grouped(
    operations: Iterable[Operation], by: By, labels: Mapping[str, str]
) -> list[Group]:
    """Return *operations* in groups, the one with the most time first."""
    key_of = _KEYS[by]
    found: dict[Hashable, Group] = {}
    for operation in operations:
        function = labels.get(operation.program, operation.program)
        key = key_of(operation, function)
        group = found.get(key)
        if group is None:
            group = found[key] = Group(
                scope=scope_of(operation),
                operation=operation.name if by == "op" else "",
            )
        group.add(operation, function)
    return sorted(found.values(), key=lambda group: -group.seconds)


def enough(groups: Sequence[Group], most: int) -> int:
    """Return how many of *groups* have nine tenths of the time, or a hundredth each."""
    total, seen = sum(group.seconds for group in groups), 0.0
    for count, group in enumerate(groups[:most]):
        if seen >= _ENOUGH * total and group.seconds < _WORTH * total:
            return count
        seen += group.seconds
    return min(len(groups), most)


def scope_of(operation: Operation) -> str:
    """Return the named scopes of *operation*, or else its function of a library."""
    return operation.origin.path.scope or _library(operation)


def _library(operation: Operation) -> str:
    place = operation.origin.place
    return "" if place is None else place.library


def _line(operation: Operation, function: str) -> Hashable:
    del function
    place = operation.origin.place
    return None if place is None else (place.file, place.line)


_KEYS: Mapping[By, Callable[[Operation, str], Hashable]] = {
    "line": _line,
    "function": lambda _, function: function,
    "scope": lambda operation, _: scope_of(operation),
    "op": lambda operation, _: (operation.program, operation.name),
}
