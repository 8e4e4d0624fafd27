"""
Detects source lines whose memory grows steadily.

Each line is judged by itself. A device's total fluctuates with whatever a loop
allocates and frees, often by gigabytes, which hides a leak of megabytes; the leaking
line's own bytes do not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from jaxmon.agent.memory.profile import Line, MemoryProfile


MIN_LOOKS = 8
"""Looks without which nothing is suspected; the window is stretched for them."""

MIN_GROWTH = 1 << 20
"""Growth in bytes below which a line is no suspect: tables and counters fill up."""

WEEK_SECONDS = 7 * 86_400.0
"""
A line must grow so fast that what the device holds would double within a week; a
program that lives longer than a week without a restart is rare.
"""

# Looks kept in a window: enough to tell a slope from a step.
_LOOKS = 32
# Lines kept of a look: what is not among the largest does not fill a device.
_MAX_LINES = 200
# What a line must be like to be suspected. A fall of more than this share of its growth
# is no growth without a pause ...
_NOISE = 1 / 8
# ... one step of more than this share is a model that was loaded ...
_STEP = 1 / 2
# ... in each third of the window it grows at no less than this share of the mean pace,
# or it has ended growing, or just begun ...
_PACE = 0.6
# ... and this share is not given back elsewhere: memory that moved is no leak.
_NET = 1 / 4
# What is suspected gets this many times the benefit of these doubts, or an alert that
# waits would start anew at each lump.
_PATIENCE = 3

_Place: TypeAlias = tuple[str, int, str]


class Suspect(NamedTuple):
    """
    Attributes:
        line: what a source line holds.
        growth_bytes: by how much that grew.
        growth_arrays: likewise.
    """

    line: Line
    growth_bytes: int
    growth_arrays: int


class Leak(NamedTuple):
    """
    Attributes:
        device: id of the local device.
        growth_bytes: growth of all suspects over *seconds*.
        seconds: time between the first look and the last.
        suspects: most growth first.
    """

    device: str
    growth_bytes: int
    seconds: float
    suspects: tuple[Suspect, ...]


class _Look(NamedTuple):
    time: float
    devices: Mapping[str, Mapping[_Place, Line]]


class LeakDetector:
    """
    Keeps memory snapshots and reports steady growth. Not thread-safe.

    Args:
        window: seconds of growth that make a suspect.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._looks: deque[_Look] = deque()
        self._leaks: dict[str, Leak] = {}
        # What the last look alone would say.
        self._doubted: dict[str, Leak] = {}

    def see(self, profile: MemoryProfile, now: float) -> Mapping[str, Leak]:
        """
        Add a snapshot and return current suspects by device.

        Args:
            profile: what was seen.
            now: seconds on a clock that never steps.
        """
        looks = self._looks
        if looks and now - looks[-1].time < self._window / _LOOKS:
            return self._leaks
        looks.append(_Look(now, _by_device(profile)))
        while len(looks) > MIN_LOOKS and looks[1].time <= now - self._window:
            looks.popleft()
        before, self._doubted = (
            self._doubted,
            self._judge() if self._is_enough() else {},
        )
        # Once in thousands of windows the looks at a saw-tooth happen to rise. They do
        # not in two windows on end.
        self._leaks = {
            device: leak
            for device, leak in self._doubted.items()
            if not _places(leak).isdisjoint(_places(before.get(device)))
        }
        return self._leaks

    def _is_enough(self) -> bool:
        looks = self._looks
        seconds = looks[-1].time - looks[0].time
        return len(looks) >= MIN_LOOKS and seconds >= self._window

    def _judge(self) -> dict[str, Leak]:
        first, last = self._looks[0], self._looks[-1]
        seconds = last.time - first.time
        leaks: dict[str, Leak] = {}
        for device, held in last.devices.items():
            before = _places(self._leaks.get(device))
            least = max(
                MIN_GROWTH,
                sum(line.bytes for line in held.values()) * seconds / WEEK_SECONDS,
            )
            suspects = [
                _suspect(line, first.devices.get(device, {}).get(place))
                for place, line in held.items()
                if _only_grows(
                    self._series(device, place),
                    least,
                    patience=_PATIENCE if place in before else 1,
                )
            ]
            growth = sum(one.growth_bytes for one in suspects)
            # What is suspected stays so until its lines say otherwise: the floor of
            # a flickering total is not seen in each look.
            if suspects and (before or self._floor(device) > growth * _NET):
                suspects.sort(key=lambda one: -one.growth_bytes)
                leaks[device] = Leak(device, growth, seconds, tuple(suspects))
        return leaks

    def _series(self, device: str, place: _Place) -> list[tuple[float, int]]:
        found = []
        for look in self._looks:
            line = look.devices.get(device, {}).get(place)
            found.append((look.time, 0 if line is None else line.bytes))
        return found

    def _floor(self, device: str) -> int:
        """Return how much higher the least total is in the later half of the window."""
        totals = [
            sum(line.bytes for line in look.devices.get(device, {}).values())
            for look in self._looks
        ]
        half = len(totals) // 2
        return min(totals[half:]) - min(totals[:half])


def _only_grows(
    series: Sequence[tuple[float, int]], least: float, *, patience: int
) -> bool:
    """Tell whether times and bytes are those of a leak of at least *least* bytes."""
    (start, lowest), (end, highest) = series[0], series[-1]
    growth = highest - lowest
    if growth < least:
        return False
    fall, step = growth * _NOISE * patience, growth * _STEP * patience
    peak = lowest
    for (_, before), (_, after) in pairwise(series):
        if peak - after > fall or after - before > step:
            return False
        peak = max(peak, after)
    pace = growth / (end - start) * _PACE / patience
    third = len(series) // 3
    marks = (series[0], series[third], series[-1 - third], series[-1])
    return all(
        after - before >= pace * (until - since)
        for (since, before), (until, after) in pairwise(marks)
    )


def _by_device(profile: MemoryProfile) -> dict[str, dict[_Place, Line]]:
    devices: dict[str, dict[_Place, Line]] = {}
    for line in profile.lines:
        held = devices.setdefault(line.device, {})
        if line.kind == "buffer" and len(held) < _MAX_LINES:
            held[_place(line)] = line
    return devices


def _place(line: Line) -> _Place:
    return line.file, line.line, line.function


def _places(leak: Leak | None) -> set[_Place]:
    return set() if leak is None else {_place(one.line) for one in leak.suspects}


def _suspect(line: Line, earlier: Line | None) -> Suspect:
    size, count = (0, 0) if earlier is None else (earlier.bytes, earlier.arrays)
    return Suspect(line, line.bytes - size, line.arrays - count)
