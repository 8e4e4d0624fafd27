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

from jaxmon.agent.memory.profile import Line, MemoryProfile, held
from jaxmon.facts import memory as facts
from jaxmon.facts.memory import Leak


MIN_LOOKS = 8
"""Minimum number of snapshots for a suspect; the window is extended if necessary."""

MIN_GROWTH = 1 << 20
"""Minimum growth of a suspect in bytes: tables and counters grow too."""

WEEK_SECONDS = 7 * 86_400.0
"""
A line must grow so fast that the device's memory use would double within a week; few
programs run for longer without a restart.
"""

# Snapshots kept per window: enough to distinguish a slope from a step.
_LOOKS = 32
# Lines kept per snapshot: only the largest can fill a device.
_MAX_LINES = 200
# Criteria for a suspect. If it falls by more than this share of its growth, the growth
# is not steady ...
_NOISE = 1 / 8
# ... a single step of more than this share is a model being loaded ...
_STEP = 1 / 2
# ... in each third of the window it grows at no less than this share of the mean rate,
# otherwise it has stopped growing or just started ...
_PACE = 0.6
# ... and this share is not freed elsewhere: memory that moved is not a leak.
_NET = 1 / 4
# Current suspects get this many times the tolerance, or a pending alert would restart
# at each irregularity.
_PATIENCE = 3

_Place: TypeAlias = tuple[str, int, str]


class _Snapshot(NamedTuple):
    time: float
    devices: Mapping[str, Mapping[_Place, Line]]


class LeakDetector:
    """
    Keeps memory snapshots and reports steady growth. Not thread-safe.

    Args:
        window: seconds of growth required for a suspect.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._looks: deque[_Snapshot] = deque()
        self._leaks: dict[str, Leak] = {}
        # The result of the last snapshot alone.
        self._doubted: dict[str, Leak] = {}

    def add(self, profile: MemoryProfile, now: float) -> Mapping[str, Leak]:
        """
        Add a snapshot and return current suspects by device.

        Args:
            profile: the snapshot.
            now: seconds on a monotonic clock.
        """
        looks = self._looks
        if looks and now - looks[-1].time < self._window / _LOOKS:
            return self._leaks
        looks.append(_Snapshot(now, _by_device(profile)))
        while len(looks) > MIN_LOOKS and looks[1].time <= now - self._window:
            looks.popleft()
        before, self._doubted = (
            self._doubted,
            self._judge() if self._is_enough() else {},
        )
        # Once in thousands of windows the snapshots of a sawtooth happen to rise, but
        # not in two consecutive windows.
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
        for device, lines in last.devices.items():
            before = _places(self._leaks.get(device))
            least = max(
                MIN_GROWTH,
                sum(line.bytes for line in lines.values()) * seconds / WEEK_SECONDS,
            )
            suspects = [
                _suspect(line, first.devices.get(device, {}).get(place))
                for place, line in lines.items()
                if _only_grows(
                    self._series(device, place),
                    least,
                    patience=_PATIENCE if place in before else 1,
                )
            ]
            growth = sum(int(one.growth_bytes) for one in suspects)
            # Suspects remain until their own lines stop growing: not every snapshot
            # catches the minimum of a fluctuating total.
            if suspects and (before or self._floor(device) > growth * _NET):
                suspects.sort(key=lambda one: -one.growth_bytes)
                leaks[device] = Leak(device, growth, seconds, lines=tuple(suspects))
        return leaks

    def _series(self, device: str, place: _Place) -> list[tuple[float, int]]:
        found = []
        for look in self._looks:
            line = look.devices.get(device, {}).get(place)
            found.append((look.time, 0 if line is None else line.bytes))
        return found

    def _floor(self, device: str) -> int:
        """
        Return how much the minimum total has risen from the first half of the window to
        the second.
        """
        totals = [
            sum(line.bytes for line in look.devices.get(device, {}).values())
            for look in self._looks
        ]
        half = len(totals) // 2
        return min(totals[half:]) - min(totals[:half])


def _only_grows(
    series: Sequence[tuple[float, int]], least: float, *, patience: int
) -> bool:
    """Return whether this series is a leak of at least *least* bytes."""
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
        lines = devices.setdefault(line.device, {})
        if line.kind == "buffer" and len(lines) < _MAX_LINES:
            lines[_place(line)] = line
    return devices


def _place(line: Line | facts.Line) -> _Place:
    return line.file, line.line, line.function


def _places(leak: Leak | None) -> set[_Place]:
    return set() if leak is None else {_place(one) for one in leak.lines}


def _suspect(line: Line, earlier: Line | None) -> facts.Line:
    size, count = (0, 0) if earlier is None else (earlier.bytes, earlier.arrays)
    return held([line])[0].replace(
        growth_bytes=line.bytes - size, growth_arrays=line.arrays - count
    )
