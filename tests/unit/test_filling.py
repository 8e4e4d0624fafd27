"""
Leaks that fill a device within minutes, and programs that only look as if they did.

Each program is a function of the second: bytes by line, and calls of its functions. The
agent looks about every five seconds, and takes a snapshot when it would.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from jaxmon.agent.memory.leaks import FillingDetector, Room, rooms, seconds_left
from jaxmon.agent.memory.profile import AllocationLine, MemoryProfile
from jaxmon.facts.memory import Leak
from tests.helpers.processes import each


MIB = 1 << 20
GIB = 1 << 30
DEVICE = 80 * GIB


class Watched(NamedTuple):
    """What was suspected at a second, and how many snapshots it took."""

    second: float | None
    leak: Leak | None
    snapshots: int


def watch(
    held: Callable[[float], Mapping[int, float]],
    calls: Callable[[float], float],
    *,
    seconds: float = 3600.0,
    seed: int = 0,
) -> Watched:
    """Return the first suspect of a program, before its device is full."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    detector, now, taken = FillingDetector(600.0), 0.0, 0
    while now < seconds:
        lines = {line: int(size) for line, size in held(now).items() if size}
        used = sum(lines.values())
        if used > DEVICE:
            break
        room = {"0": Room(used, DEVICE - used)}
        if detector.look(room, now):
            taken += 1
            profile = MemoryProfile(
                0.0,
                tuple(
                    AllocationLine("a.py", line, "f", "0", "buffer", size, 1)
                    for line, size in lines.items()
                ),
            )
            found = detector.add(profile, room, int(calls(now)), now)
            if leak := found.get("0"):
                return Watched(now, leak, taken)
        now += 5 * chance.uniform(0.6, 1.4)
    return Watched(None, None, taken)


def ramp(second: float, start: float, end: float) -> float:
    """Return how far from *start* to *end* a second is, 0 to 1."""
    return min(max((second - start) / (end - start), 0), 1)


def busy(second: float) -> float:
    """Return the calls of a program that computes all the time."""
    return 10 * second


@pytest.mark.parametrize("minutes", [2, 3, 5, 10])
@pytest.mark.parametrize("start", [0, 600])
@pytest.mark.parametrize("seed", range(5))
def test_a_leak_is_found_before_the_device_is_full(minutes, start, seed):
    """Whatever it fills in minutes is named while there is time left."""
    free = DEVICE - 20 * GIB
    found = watch(
        lambda s: {1: 20 * GIB, 2: free * max(s - start, 0) / (60 * minutes)},
        busy,
        seed=seed,
    )

    assert found.leak is not None
    assert found.second is not None
    assert {one.line for one in found.leak.lines} == {2}
    left = start + 60 * minutes - found.second
    assert left >= 20
    room = {"0": Room(0, int(free - free * (found.second - start) / 60 / minutes))}
    assert seconds_left(found.leak, room["0"]) == pytest.approx(left, rel=0.05)


def test_a_leak_beside_noise_is_found():
    """What a training step allocates and frees does not hide it."""
    found = watch(
        lambda s: {1: 8 * GIB * (1 + int(s * 977) % 2), 2: 200 * MIB * s}, busy
    )

    assert found.leak is not None
    assert [one.line for one in found.leak.lines] == [2]


HEALTHY: dict[str, tuple[Callable[[float], Mapping[int, float]], Any]] = {
    "steady": (lambda _: {1: 70 * GIB}, busy),
    "a model that is loaded": (
        lambda s: {1: 60 * GIB * ramp(s, 5, 200)},
        lambda s: 10 * max(s - 200, 0),
    ),
    "data that is loaded, after one call": (
        lambda s: {1: 70 * GIB * ramp(s, 5, 300)},
        lambda s: 1 if s > 20 else 0,
    ),
    "a buffer that fills to a third of the device": (
        lambda s: {1: 20 * GIB, 2: 27 * GIB * ramp(s, 60, 360)},
        busy,
    ),
    "a cache that warms up": (
        lambda s: {1: 40 * GIB, 2: 20 * GIB * (1 - 2 ** (-s / 30))},
        busy,
    ),
    "a checkpoint in memory": (
        lambda s: {1: 30 * GIB, 2: 30 * GIB * (s % 300 > 280)},
        busy,
    ),
    "a list that is emptied every minute": (
        lambda s: {1: 60 * GIB, 2: 10 * GIB * (s % 60) / 60},
        busy,
    ),
    "a slow leak": (lambda s: {1: 40 * GIB, 2: 2 * MIB * s}, busy),
}


@each({f"{name}, {seed}": (name, seed) for name in HEALTHY for seed in range(5)})
def test_what_stops_in_time_is_no_leak(name, seed):
    """Loading, filling, caching and saving are not suspected within minutes."""
    assert watch(*HEALTHY[name], seed=seed).leak is None


def test_memory_that_does_not_grow_costs_no_snapshots():
    """More snapshots are taken only while a device fills up."""
    assert watch(lambda _: {1: 79 * GIB}, busy).snapshots == 0
    assert watch(lambda s: {1: GIB + MIB * s}, busy).snapshots == 0


class Device:
    """A device that reports *stats*."""

    def __init__(self, number: int, stats: Any, platform: str = "gpu") -> None:
        self.id, self.platform, self._stats = number, platform, stats

    def memory_stats(self) -> Any:
        return self._stats


def test_room_is_what_the_allocator_may_still_use():
    """With preallocation, the limit is a fraction of the device's memory."""
    found = rooms(
        [
            Device(0, {"bytes_limit": 60, "bytes_in_use": 45, "pool_bytes": 60}),
            Device(1, {"bytes_in_use": 45}),
            Device(2, None),
            Device(3, {"bytes_limit": 60, "bytes_in_use": -1}),
        ]
    )

    assert found == {"0": Room(45, 15)}


def test_the_cpu_has_what_the_process_may_still_use():
    """All CPU devices share the memory of the host."""
    found = rooms([Device(0, None, "cpu"), Device(1, None, "cpu")])

    assert found["0"] == found["1"]
    assert found["0"].used > MIB
    assert found["0"].free > 0


def test_nothing_is_known_without_room():
    """A leak on a device that reports no limit has no time that is left."""
    leak = Leak("0", GIB, 40.0)

    assert seconds_left(leak, None) is None
    assert seconds_left(leak, Room(1, 2 * GIB)) == 80.0
