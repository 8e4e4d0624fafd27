"""
What looks like a leak, and what only looks like one at first.

Each program is a function of the minute: bytes by line of its source. The agent looks
about once a minute, for the default window of ten, at moments that vary as they do in
`MemoryLines`.
"""

import random
from collections.abc import Callable, Mapping

import pytest

from jaxmon.agent.memory.leaks import MIN_LOOKS, LeakDetector
from jaxmon.agent.memory.profile import AllocationLine, MemoryProfile
from jaxmon.facts.memory import Leak


MIB = 1 << 20
GIB = 1 << 30
WINDOW = 600.0

Program = Callable[[float], Mapping[int, float]]


def profile(held: Mapping[int, float], device: str = "0") -> MemoryProfile:
    """Return a look at a program that holds so many bytes by line."""
    return MemoryProfile(
        0.0,
        tuple(
            AllocationLine("a.py", line, "f", device, "buffer", int(size), 1)
            for line, size in held.items()
            if size
        ),
    )


def watch(program: Program, minutes: float, seed: int = 0) -> list[Leak | None]:
    """Return what is suspected on device 0 after each look."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    detector, now, found = LeakDetector(WINDOW), 0.0, []
    while now < minutes * 60:
        found.append(detector.add(profile(program(now / 60)), now).get("0"))
        now += 60 * chance.uniform(0.6, 1.4)
    return found


def ramp(minute: float, start: float, end: float) -> float:
    """Return how far from *start* to *end* a minute is, 0 to 1."""
    return min(max((minute - start) / (end - start), 0), 1)


INNOCENT: dict[str, Program] = {
    "steady": lambda _: {1: 10 * GIB},
    "warm-up: parameters, then programs, then state": lambda m: {
        1: 2 * GIB,
        2: 4 * GIB * (m > 1),
        3: 500 * MIB * (m > 2),
        4: 100 * MIB * ramp(m, 2, 6),
    },
    "a step in the middle": lambda m: {1: GIB, 2: GIB * (m > 30)},
    "a cache that fills in less than half a window": lambda m: {
        1: GIB,
        2: 500 * MIB * ramp(m, 3, 7),
    },
    "a cache that fills ever slower": lambda m: {1: GIB, 2: GIB * (1 - 2 ** (-m / 2))},
    "a list of losses, emptied every 100 steps": lambda m: {
        1: GIB,
        2: 200 * MIB * ((m / 1.02) % 1),
    },
    "a list emptied every five minutes": lambda m: {1: GIB, 2: 200 * MIB * (m % 5)},
    "states that are there twice now and then": lambda m: {
        1: 8 * GIB * (1 + (int(m * 977) % 2)),
    },
    "noise": lambda m: {1: GIB + 100 * MIB * (int(m * 6000) * 7919 % 1000 / 1000)},
    "a small table": lambda m: {1: GIB, 2: 1000 * m},
    "slow beside what is held": lambda m: {1: 40 * GIB, 2: 2 * MIB * m},
    "memory that moves from a line to another": lambda m: {
        1: 4 * GIB * (1 - ramp(m, 5, 45)),
        2: 4 * GIB * ramp(m, 5, 45),
    },
    "nothing": lambda _: {},
}


@pytest.mark.parametrize("program", INNOCENT.values(), ids=INNOCENT)
@pytest.mark.parametrize("seed", range(5))
def test_no_leak_is_no_leak(program, seed):
    """
    A program that holds more for a while, or now and then, is not suspected in an hour.
    """
    assert not any(watch(program, 60, seed))


GUILTY: dict[str, Program] = {
    "a loss kept each step": lambda m: {1: GIB, 2: 10 * MIB * m},
    "beside states that are there twice now and then": lambda m: {
        1: 8 * GIB * (1 + (int(m * 977) % 2)),
        2: 100 * MIB * m,
    },
    "with what the line itself drops again": lambda m: {
        2: 10 * MIB * m + 5 * MIB * (int(m * 977) % 2),
    },
    "in lumps, every minute": lambda m: {1: GIB, 2: 10 * MIB * int(m)},
    "ever faster": lambda m: {1: GIB, 2: 10 * MIB * m * m},
}


@pytest.mark.parametrize("program", GUILTY.values(), ids=GUILTY)
@pytest.mark.parametrize("seed", range(5))
def test_a_leak_is_suspected_and_its_line_named(program, seed):
    """
    Within a quarter of an hour, and from then on; only the line that leaks is named.
    """
    found = watch(program, 60, seed)
    first = next(at for at, leak in enumerate(found) if leak)

    assert first <= 20
    assert all(found[first:])
    assert {one.line for leak in found if leak for one in leak.lines} == {2}


def test_growth_is_that_of_the_window():
    """Bytes are those by which the line grew in the reported seconds."""
    leak = watch(GUILTY["a loss kept each step"], 60)[-1]

    assert leak is not None
    assert WINDOW <= leak.seconds < 2 * WINDOW
    assert leak.growth_bytes == pytest.approx(10 * MIB * leak.seconds / 60, abs=2)
    assert sum(one.growth_bytes for one in leak.lines) == leak.growth_bytes


@pytest.mark.parametrize("end", [0.0, 40.0], ids=["dropped", "kept"])
def test_suspicion_ends_with_the_growth(end):
    """When the arrays are dropped, or merely no more come, nothing is suspected."""
    found = watch(lambda m: {2: 10 * MIB * (m if m < 40 else end)}, 60)

    assert any(found)
    assert found[-1] is None


@pytest.mark.parametrize(("minutes", "suspected"), [(10, False), (11, True)])
def test_one_window_is_no_suspicion(minutes, suspected):
    """What rose in a window by chance does not in the next: a second look decides."""
    detector = LeakDetector(WINDOW)
    found = [
        detector.add(profile({2: 10 * MIB * minute}), minute * 60.0)
        for minute in range(minutes + 1)
    ]
    found.append(detector.add(profile({2: 0}), (minutes + 1) * 60.0))

    assert any(found) is suspected
    assert not found[-1]


def test_devices_are_judged_apart():
    """A leak on one of two devices is a leak on that one."""
    detector = LeakDetector(WINDOW)
    found: Mapping[str, Leak] = {}
    for minute in range(20):
        lines = (
            *profile({1: GIB}, "0").lines,
            *profile({1: GIB + 10 * MIB * minute}, "1").lines,
        )
        found = detector.add(MemoryProfile(0.0, lines), minute * 60.0)

    assert list(found) == ["1"]


def test_few_looks_stretch_the_window():
    """Where looks are rarer than the window, eight of them are waited for."""
    detector = LeakDetector(WINDOW)
    found = [
        bool(detector.add(profile({1: 100 * MIB * look}), look * WINDOW))
        for look in range(MIN_LOOKS + 2)
    ]

    assert found.index(True) == MIN_LOOKS


def test_many_looks_are_thinned_out():
    """Looking all the time does not make memory of it."""
    detector = LeakDetector(WINDOW)
    for look in range(10_000):
        detector.add(profile({1: 100 * look}), look / 10)

    assert len(detector._looks) < 40
