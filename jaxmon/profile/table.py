"""Time by program and operation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from jaxmon.profile.xspace import Event, Line, Plane


_OPS_LINE = "XLA Ops"
_PS = 1e12


@dataclass(frozen=True, slots=True)
class Row:
    """
    One operation of one program.

    Attributes:
        program: XLA's name of the program, such as ``jit_step``.
        operation: XLA's name of it: a fusion, a kernel, a convolution.
        count: how often it ran, on all devices.
        seconds: spent in the operation itself, excluding nested operations.
    """

    program: str
    operation: str
    count: int
    seconds: float


def rows(planes: Iterable[Plane]) -> list[Row]:
    """
    Return a row for each operation, the most time first.

    Time is summed over devices and threads, so it may exceed the time recorded.
    """
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for plane in planes:
        for line in _with_operations(plane):
            for event, own in _own_time(line):
                if event.op is not None or line.name == _OPS_LINE:
                    key = (event.module or "", event.op or event.name)
                    seconds[key] += own / _PS
                    counts[key] += 1
    found = [Row(*key, counts[key], spent) for key, spent in seconds.items()]
    return sorted(found, key=lambda row: (-row.seconds, row.program, row.operation))


def _with_operations(plane: Plane) -> tuple[Line, ...]:
    """
    Return the lines that hold operations, each operation on one of them.

    A TPU's plane repeats its operations on lines for steps, modules and scopes.
    """
    named = tuple(line for line in plane.lines if line.name == _OPS_LINE)
    return named or plane.lines


def _own_time(line: Line) -> list[tuple[Event, int]]:
    """Return each operation with its duration less that of operations inside it."""
    everything = line.name == _OPS_LINE
    events = [event for event in line.events if everything or event.op is not None]
    own = [event.duration for event in events]
    open_: list[int] = []
    for index, event in enumerate(events):
        while open_ and _end(events[open_[-1]]) <= event.start:
            open_.pop()
        if open_ and _end(events[open_[-1]]) >= _end(event):
            own[open_[-1]] -= event.duration
        open_.append(index)
    return list(zip(events, own, strict=True))


def _end(event: Event) -> int:
    return event.start + event.duration
