"""
Detects memory that fills up: source lines whose memory grows steadily, and devices that
will be full within minutes.

Each line is judged by itself. A device's total fluctuates with whatever a loop
allocates and frees, often by gigabytes, which hides a leak of megabytes; the leaking
line's own bytes do not.

The usual window is too long for leaks that fill a device within minutes. A shorter one
alone would accuse programs that load something large, warm up a cache or fill a buffer.
So a line is suspected early only if it has grown for longer than it takes to fill the
rest of the device, if that is minutes, and if the program computes meanwhile: what
loads calls no functions.

In a program that is younger than the window, what grows with its calls is suspected, if
it is much: arrays on devices by line, and the rest of the host's memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from jaxmon.agent.memory.profile import AllocationLine, MemoryProfile, held
from jaxmon.facts import memory as facts
from jaxmon.facts.memory import HostGrowth, HostMemory, Leak
from jaxmon.host.resources import container


class Room(NamedTuple):
    """Bytes of a device in use, of the process on the CPU, and until it is full."""

    used: int
    free: int


def rooms(devices: Iterable[Any]) -> dict[str, Room]:
    """
    Return the room of *devices* that report it, by id; microseconds each, 0.1 ms for
    CPU. What XLA has preallocated is what an allocator may use.
    """
    found: dict[str, Room] = {}
    host: Room | None = None
    for device in devices:
        if device.platform == "cpu":
            host = host or room_of_host()
            if host is not None:
                found[str(device.id)] = host
            continue
        stats = device.memory_stats() or {}
        limit, used = stats.get("bytes_limit", 0), stats.get("bytes_in_use", -1)
        if limit > 0 and used >= 0:
            found[str(device.id)] = Room(used, max(limit - used, 0))
    return found


def room_of_host() -> Room | None:
    """Return the room of the host or container, `None` if that is unknown."""
    memory = HostMemory(**container.memory())
    if memory.resident is None or memory.room is None:
        return None
    return Room(memory.resident, memory.room)


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
    devices: Mapping[str, Mapping[_Place, AllocationLine]]


class LeakDetector:
    """Reports growth that is steady for a *window* of seconds. Not thread-safe."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._looks: deque[_Snapshot] = deque()
        self._leaks: dict[str, Leak] = {}
        # The result of the last snapshot alone.
        self._doubted: dict[str, Leak] = {}

    def add(self, profile: MemoryProfile, now: float) -> Mapping[str, Leak]:
        """Add a snapshot and return current suspects by device; *now* is monotonic."""
        looks = self._looks
        if looks and now - looks[-1].time < self._window / _LOOKS:
            return self._leaks
        looks.append(_Snapshot(now, _by_device(profile)))
        while len(looks) > MIN_LOOKS and looks[1].time <= now - self._window:
            looks.popleft()
        before, seconds = self._doubted, looks[-1].time - looks[0].time
        is_enough = len(looks) >= MIN_LOOKS and seconds >= self._window
        self._doubted = self._judge() if is_enough else {}
        # Once in thousands of windows the snapshots of a sawtooth happen to rise, but
        # not in two consecutive windows.
        self._leaks = {
            device: leak
            for device, leak in self._doubted.items()
            if not _places(leak).isdisjoint(_places(before.get(device)))
        }
        return self._leaks

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
            growth = sum(int(suspect.growth_bytes) for suspect in suspects)
            # Suspects remain until their own lines stop growing: not every snapshot
            # catches the minimum of a fluctuating total.
            if suspects and (before or self._floor(device) > growth * _NET):
                suspects.sort(key=lambda suspect: -suspect.growth_bytes)
                leaks[device] = Leak(device, growth, seconds, lines=tuple(suspects))
        return leaks

    def _series(self, device: str, place: _Place) -> list[tuple[float, int]]:
        found = []
        for look in self._looks:
            line = look.devices.get(device, {}).get(place)
            found.append((look.time, 0 if line is None else line.bytes))
        return found

    def _floor(self, device: str) -> int:
        totals = [
            sum(line.bytes for line in look.devices.get(device, {}).values())
            for look in self._looks
        ]
        half = len(totals) // 2
        return min(totals[half:]) - min(totals[:half])


def _only_grows(
    series: Sequence[tuple[float, int]], least: float, *, patience: int
) -> bool:
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


def _by_device(profile: MemoryProfile) -> dict[str, dict[_Place, AllocationLine]]:
    devices: dict[str, dict[_Place, AllocationLine]] = {}
    for line in profile.lines:
        lines = devices.setdefault(line.device, {})
        if line.kind == "buffer" and len(lines) < _MAX_LINES:
            lines[_place(line)] = line
    return devices


def _place(line: AllocationLine | facts.Line) -> _Place:
    return line.file, line.line, line.function


def _places(leak: Leak | None) -> set[_Place]:
    return set() if leak is None else {_place(line) for line in leak.lines}


def _suspect(line: AllocationLine, earlier: AllocationLine | None) -> facts.Line:
    size, count = (0, 0) if earlier is None else (earlier.bytes, earlier.arrays)
    return held([line])[0].replace(
        growth_bytes=line.bytes - size, growth_arrays=line.arrays - count
    )


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


YOUNG_GROWTH = 256 << 20
"""Bytes by which a young program must have grown."""

GROWING_BYTES = 64 << 20
"""Bytes by which it must have grown to be said to grow, which is no fault yet."""

YOUNG_SECONDS = 30.0
"""
Seconds for which a line must have grown in a young program that runs, and has memory
left for minutes: a cache of a fixed size is full by then.
"""

_YOUNG_LOOKS, _YOUNG_CALLS, _YOUNG_ARRAYS = 5, 100, 16
# The first calls are not like the others; after so many more than it grew for, what
# has not grown has stopped.
_WARM_CALLS, _STILL_CALLS = 1 / 4, 1 / 2


class _YoungLook(NamedTuple):
    time: float
    calls: int
    rest: int
    devices: Mapping[str, Mapping[_Place, AllocationLine]]


class YoungDetector:
    """
    Judges what grows with the calls of a program since it began. Not thread-safe.
    Arrays accumulate in *leaks*, by device, and grow in *growing*, if that is less; the
    rest of the host's memory grows in *host*, and since the first call by *risen*
    bytes.
    """

    def __init__(self) -> None:
        self._looks: list[_YoungLook] = []
        self._rest: int | None = None
        self.risen = 0
        self.leaks: dict[str, Leak] = {}
        self.growing: dict[str, Leak] = {}
        self.host: HostGrowth | None = None

    def add(
        self, profile: MemoryProfile, resident: int, calls: int, now: float
    ) -> None:
        """Add a snapshot after so many *calls*; *resident* bytes are without arrays."""
        looks = self._looks
        if calls:
            self._rest = resident if self._rest is None else self._rest
            self.risen = resident - self._rest
        if looks and calls <= looks[-1].calls:
            return
        devices = {
            device: {at: line for at, line in lines.items() if line.bytes > MIN_GROWTH}
            for device, lines in _by_device(profile).items()
        }
        looks.append(_YoungLook(now, calls, resident, devices))
        if len(looks) > 2 * _LOOKS:
            del looks[1:-1:2]
        self.leaks, self.growing, self.host = {}, {}, None
        later = [look for look in looks if look.calls >= calls * _WARM_CALLS]
        if len(later) >= _YOUNG_LOOKS and calls >= _YOUNG_CALLS:
            self._judge(later)

    def goes_on(self, growth: Leak | HostGrowth, calls: int) -> bool:
        """Return whether *growth* may go on: a snapshot follows soon if it does."""
        return calls - self._looks[-1].calls <= growth.calls * _STILL_CALLS

    def urgent(self, rooms: Mapping[str, Room]) -> dict[str, Leak]:
        """Return what has accumulated for long, or leaves only minutes, by device."""
        found: dict[str, Leak] = {}
        for device, leak in self.leaks.items():
            left = seconds_left(leak, rooms.get(device))
            fills = left is not None and left <= FULL_SECONDS
            if fills or leak.seconds >= YOUNG_SECONDS:
                found[device] = leak
        return found

    def _judge(self, looks: Sequence[_YoungLook]) -> None:
        first, last = looks[0], looks[-1]
        seconds, calls = last.time - first.time, last.calls - first.calls
        for device, lines in last.devices.items():
            suspects, growing = [], []
            for place, line in lines.items():
                at = [look.devices.get(device, {}).get(place) for look in looks]
                series = [
                    (float(look.calls), 0 if held is None else held.bytes)
                    for look, held in zip(looks, at, strict=True)
                ]
                suspect = _suspect(line, at[0])
                if suspect.growth_arrays < _YOUNG_ARRAYS:
                    continue
                if _grows_with_calls(series):
                    suspects.append(suspect)
                elif _grows_with_calls(series, least=GROWING_BYTES):
                    growing.append(suspect)
            for found, held_by in ((suspects, self.leaks), (growing, self.growing)):
                if found:
                    found.sort(key=lambda suspect: -suspect.growth_bytes)
                    growth = sum(suspect.growth_bytes for suspect in found)
                    held_by[device] = Leak(
                        device, growth, seconds, lines=tuple(found), calls=calls
                    )
        if _grows_with_calls([(look.calls, look.rest) for look in looks], whole=False):
            self.host = HostGrowth(last.rest - first.rest, seconds, calls)


def _grows_with_calls(
    series: Sequence[tuple[float, int]],
    *,
    whole: bool = True,
    least: int = YOUNG_GROWTH,
) -> bool:
    least = max(least, series[-1][1] // 2 if whole else 0)
    return _only_grows(series, least, patience=1)


class _Look(NamedTuple):
    time: float
    rooms: Mapping[str, Room]


class FillingDetector:
    """Decides when snapshots are urgent, and judges them. Not thread-safe."""

    def __init__(self, window: float) -> None:
        self._window = min(window, WINDOW_SECONDS)
        self._looks: deque[_Look] = deque()
        self._until = 0.0
        self._detector = LeakDetector(self._window)
        self._calls: deque[tuple[float, int]] = deque()
        # When the growth of suspects began, by device.
        self._began: dict[str, float] = {}

    def look(self, rooms: Mapping[str, Room], now: float) -> bool:
        """Return whether a device may be full in minutes: a snapshot is due."""
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
        self._calls.clear()
        self._began.clear()
        self._detector = LeakDetector(self._window)
        return False

    def add(
        self, profile: MemoryProfile, rooms: Mapping[str, Room], calls: int, now: float
    ) -> Mapping[str, Leak]:
        """Add a snapshot and return the leaks that leave only minutes, by device."""
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
        left = seconds_left(leak, rooms.get(leak.device))
        grown = now - self._began[leak.device]
        return left is not None and left <= min(FULL_SECONDS, _OF_THE_TIME * grown)

    def _computes(self) -> bool:
        calls = [count for _, count in self._calls]
        third = len(calls) // 3
        marks = (calls[0], calls[third], calls[-1 - third], calls[-1])
        return third > 0 and all(before < after for before, after in pairwise(marks))


def seconds_left(growth: Leak | HostGrowth, room: Room | None) -> float | None:
    """Return when *growth* fills *room*, `None` if that is unknown."""
    if room is None or not growth.seconds or not growth.growth_bytes:
        return None
    return room.free * growth.seconds / growth.growth_bytes
