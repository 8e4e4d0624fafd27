"""
XLA's trace format, XSpace: planes (devices, the host), their lines, and events.

The parts of the schema that are read, from ``tsl/profiler/protobuf/xplane.proto``:

    XSpace   planes=1
    XPlane   name=2 lines=3 event_metadata=4 stat_metadata=5
    XLine    name=2 timestamp_ns=3 events=4 display_name=11
    XEvent   metadata_id=1 offset_ps=2 duration_ps=3 stats=4
    XStat    metadata_id=1 uint64=3 int64=4 str=5 ref=7
    metadata entries   key=1 value=2; XEventMetadata and XStatMetadata name=2
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jaxmon.formats import protobuf as wire
from jaxmon.formats.protobuf import Value


@dataclass(frozen=True, slots=True)
class Event:
    """
    Something that took time.

    Attributes:
        name: of the operation or the function.
        start: picoseconds after its line's timestamp.
        duration: in picoseconds.
        op: XLA's name of the operation, if it is one.
        module: XLA's name of the program, if the event belongs to one.
    """

    name: str
    start: int
    duration: int
    op: str | None = None
    module: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """
    A thread or a stream.

    Attributes:
        name: of the thread or stream.
        timestamp: nanoseconds; zero of its events.
        events: in order of their start.
    """

    name: str
    timestamp: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Plane:
    """A device (``/device:GPU:0``) or the host (``/host:CPU``)."""

    name: str
    lines: tuple[Line, ...]


def parse(space: bytes) -> tuple[Plane, ...]:
    """
    Return the planes in *space*. About 3 µs for each event.

    Raises:
        WireError: *space* is not an XSpace.
    """
    found = [value for number, value in wire.fields(space) if number == 1]
    return tuple(_plane(value) for value in _messages(found))


def _plane(message: memoryview) -> Plane:
    name, lines = "", []
    events: dict[int, str] = {}
    stats: dict[int, str] = {}
    for number, value in wire.fields(message):
        if number == 2:  # noqa: PLR2004 - field numbers, here and below: see above
            name = wire.text(value)
        elif number == 3 and isinstance(value, memoryview):  # noqa: PLR2004
            lines.append(value)
        elif number == 4 and isinstance(value, memoryview):  # noqa: PLR2004
            events.update(_named(value))
        elif number == 5 and isinstance(value, memoryview):  # noqa: PLR2004
            stats.update(_named(value))
    return Plane(name, tuple(_line(line, events, stats) for line in lines))


def _named(entry: memoryview) -> Iterator[tuple[int, str]]:
    """Yield the id and name of a metadata entry."""
    key, name = 0, ""
    for number, value in wire.fields(entry):
        if number == 1 and isinstance(value, int):
            key = value
        elif number == 2 and isinstance(value, memoryview):  # noqa: PLR2004
            for inner, text in wire.fields(value):
                if inner == 2:  # noqa: PLR2004
                    name = wire.text(text)
    yield key, name


def _line(message: memoryview, names: dict[int, str], stats: dict[int, str]) -> Line:
    name, timestamp, events = "", 0, []
    for number, value in wire.fields(message):
        if number in (2, 11) and not (number == 2 and name):  # noqa: PLR2004
            name = wire.text(value) or name
        elif number == 3 and isinstance(value, int):  # noqa: PLR2004
            timestamp = value
        elif number == 4 and isinstance(value, memoryview):  # noqa: PLR2004
            events.append(_event(value, names, stats))
    events.sort(key=lambda event: (event.start, -event.duration))
    return Line(name, timestamp, tuple(events))


def _event(message: memoryview, names: dict[int, str], stats: dict[int, str]) -> Event:
    key = start = duration = 0
    told: dict[str, str] = {}
    for number, value in wire.fields(message):
        if number == 4 and isinstance(value, memoryview):  # noqa: PLR2004
            told.update(_stat(value, stats))
        elif not isinstance(value, int):
            continue
        elif number == 1:
            key = value
        elif number == 2:  # noqa: PLR2004
            start = value
        elif number == 3:  # noqa: PLR2004
            duration = value
    name = names.get(key, "")
    return Event(name, start, duration, told.get("hlo_op"), told.get("hlo_module"))


def _stat(message: memoryview, stats: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of a stat, if it has a text."""
    key = 0
    for number, value in wire.fields(message):
        if number == 1 and isinstance(value, int):
            key = value
        elif number == 5:  # noqa: PLR2004
            yield stats.get(key, ""), wire.text(value)
        elif number == 7 and isinstance(value, int):  # noqa: PLR2004
            yield stats.get(key, ""), stats.get(value, "")


def _messages(values: list[Value]) -> list[memoryview]:
    return [value for value in values if isinstance(value, memoryview)]
