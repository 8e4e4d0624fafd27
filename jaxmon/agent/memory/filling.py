"""
Detects leaks that fill a device within minutes, before they do.

The usual window would be too long for them. A shorter one alone would accuse programs
that load something large, warm up a cache or fill a buffer. So a line is suspected
early only if it has grown for longer than it takes to fill the rest of the device, if
that is minutes, and if the program computes meanwhile: what loads calls no functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from jaxmon.agent.memory.leaks import LeakDetector
from jaxmon.agent.memory.profile import MemoryProfile
from jaxmon.agent.memory.room import Room
from jaxmon.facts.memory import Leak


WINDOW_SECONDS = 40.0
"""Seconds of growth required."""

_OF_THE_TIME = 0.8
"""Time left, as a fraction of the time for which a line has grown."""

FULL_SECONDS = 300.0
"""A device that has more time than that has the usual window."""

TREND_SECONDS = 15.0
"""Seconds in which memory grew before more snapshots are taken."""

_WORTH_LOOKING = 600.0
_PATIENCE_SECONDS = 60.0


class _Look(NamedTuple):
    time: float
    rooms: Mapping[str, Room]


class FillingDetector:
    """
    Decides when to take snapshots more often, and judges them. Not thread-safe.

    Args:
        window: seconds of growth that make a usual suspect; fewer make none here.
    """

    def __init__(self, window: float) -> None:
        self._window = min(window, WINDOW_SECONDS)
        self._looks: deque[_Look] = deque()
        self._until = 0.0
        self._detector = LeakDetector(self._window)
        self._calls: deque[tuple[float, int]] = deque()
        # When the growth of suspects began, by device.
        self._began: dict[str, float] = {}

    def look(self, rooms: Mapping[str, Room], now: float) -> bool:
        """
        Return whether a device may be full within minutes, so that a snapshot is due.

        Args:
            rooms: the room of each device.
            now: seconds on a monotonic clock.
        """
        looks = self._looks
        looks.append(_Look(now, rooms))
        while len(looks) > 1 and looks[1].time <= now - TREND_SECONDS:
            looks.popleft()
        first = looks[0]
        if now - first.time >= TREND_SECONDS * 2 / 3:
            for device, room in rooms.items():
                before = first.rooms.get(device, room)
                pace = (room.used - before.used) / (now - first.time)
                if pace * _WORTH_LOOKING > room.free:
                    self._until = now + _PATIENCE_SECONDS
        if now < self._until:
            return True
        self._forget()
        return False

    def add(
        self,
        profile: MemoryProfile,
        rooms: Mapping[str, Room],
        calls: int,
        now: float,
    ) -> Mapping[str, Leak]:
        """
        Add a snapshot and return the leaks that leave only minutes, by device.

        Args:
            profile: the snapshot.
            rooms: the room of each device.
            calls: calls of jitted functions so far.
            now: seconds on a monotonic clock.
        """
        self._calls.append((now, calls))
        while len(self._calls) > 1 and self._calls[1][0] <= now - self._window:
            self._calls.popleft()
        found = self._detector.add(profile, now)
        self._began = {
            device: self._began.get(device, now - leak.seconds)
            for device, leak in found.items()
        }
        if not self._computes():
            return {}
        return {
            device: leak
            for device, leak in found.items()
            if self._is_urgent(leak, rooms, now)
        }

    def _is_urgent(self, leak: Leak, rooms: Mapping[str, Room], now: float) -> bool:
        left = seconds_left(leak, rooms)
        grown = now - self._began[leak.device]
        return left is not None and left <= min(FULL_SECONDS, _OF_THE_TIME * grown)

    def _computes(self) -> bool:
        """Return whether the program has called functions all the time."""
        calls = [count for _, count in self._calls]
        third = len(calls) // 3
        marks = (calls[0], calls[third], calls[-1 - third], calls[-1])
        return third > 0 and all(before < after for before, after in pairwise(marks))

    def _forget(self) -> None:
        self._calls.clear()
        self._began.clear()
        self._detector = LeakDetector(self._window)


def seconds_left(leak: Leak, rooms: Mapping[str, Room]) -> float | None:
    """Return when *leak* fills its device, `None` if it is unknown how much is free."""
    room = rooms.get(leak.device)
    if room is None or not leak.seconds:
        return None
    return room.free * leak.seconds / leak.growth_bytes
