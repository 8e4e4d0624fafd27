"""
What looks like a leak, and what only looks like one at first.

Each program is a function of the minute: bytes by line of its source. The agent looks
about once a minute, for the default window of ten, at moments that vary as they do in
`MemoryLines`.
"""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import pytest

from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.memory.holders import HolderFinder
from jaxmon.agent.memory.leaks import (
    MIN_LOOKS,
    LeakDetector,
    Room,
    YoungDetector,
)
from jaxmon.agent.memory.profile import AllocationLine, MemoryProfile
from jaxmon.facts.memory import Leak
from tests.helpers.processes import each, until


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


@each(
    {
        f"{name}, {seed}": (program, seed)
        for name, program in INNOCENT.items()
        for seed in range(5)
    }
)
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


YOUNG: dict[str, tuple[Callable[[int], tuple[float, float]], str]] = {
    # Bytes of the arrays of a line, and of the rest of the process, by calls.
    "arrays of each call": (lambda n: (2 * MIB * n, GIB), "arrays"),
    "beside what the process began with": (lambda n: (2 * MIB * n, 40 * GIB), "arrays"),
    "the rest": (lambda n: (MIB, GIB + 2 * MIB * n), "host"),
    "filled once": (lambda n: (GIB * (n > 3), GIB), ""),
    "a buffer that is filled to its size": (lambda n: (4 * MIB * min(n, 120), GIB), ""),
    "the same on the host": (lambda n: (MIB, 4 * MIB * min(n, 120)), ""),
    "little": (lambda n: (MIB * n / 8, GIB + MIB * n / 8), ""),
    "cleared again and again": (lambda n: (20 * MIB * (n % 30), GIB), ""),
    "slow beside what it holds": (lambda n: (8 * GIB + MIB * n, GIB), ""),
}


@pytest.mark.parametrize("case", YOUNG)
def test_what_grows_with_the_calls_of_a_young_program_is_found(case: str) -> None:
    """To the end; what is full, emptied, or little is not."""
    held, kind = YOUNG[case]
    detector = YoungDetector()
    for look in range(1, 31):
        calls = 10 * look
        size, rest = held(calls)
        line = AllocationLine("a.py", 2, "f", "0", "buffer", int(size), calls)
        detector.add(MemoryProfile(0.0, (line,)), int(rest), calls, look / 5)

    leak = detector.leaks.get("0")
    assert [leak is not None, detector.host is not None] == [
        kind == "arrays",
        kind == "host",
    ]
    if leak is not None:
        assert (leak.growth_bytes, leak.calls) == (2 * MIB * leak.calls, 220)
        assert leak.lines[0].growth_arrays == 220
    if detector.host is not None:
        assert detector.host.growth_bytes == 2 * MIB * detector.host.calls


@pytest.mark.parametrize(
    ("seconds", "room", "told"), [(12, 1 << 40, 0), (48, 1 << 40, 1), (12, 8 * GIB, 1)]
)
def test_a_cache_that_fills_is_no_leak_until_it_lasts_or_is_urgent(seconds, room, told):
    """While there is memory for hours, half a minute more costs nothing."""
    detector = YoungDetector()
    for look in range(1, 31):
        size, at = 20 * MIB * look, look * seconds / 30
        line = AllocationLine("a.py", 2, "f", "0", "buffer", size, 10 * look)
        detector.add(MemoryProfile(0.0, (line,)), GIB, 10 * look, at)

    assert len(detector.leaks) == 1
    assert len(detector.urgent({"0": Room(size, room)})) == told


@pytest.mark.parametrize(
    ("most", "grows"), [(200 * MIB, True), (40 * MIB, False), (100 * MIB, False)]
)
def test_what_grows_is_said_before_it_is_a_leak(most: int, *, grows: bool) -> None:
    """Not a little, nor what was filled to its size by half of the time."""
    detector = YoungDetector()
    for look in range(1, 31):
        size = most * look // 30 if most != 100 * MIB else min(8 * look * MIB, most)
        line = AllocationLine("a.py", 2, "f", "0", "buffer", size, 10 * look)
        detector.add(MemoryProfile(0.0, (line,)), GIB, 10 * look, look / 3)

    assert detector.leaks == {}
    assert bool(detector.growing) == grows


def test_a_sweep_that_collects_a_few_large_results_is_no_leak() -> None:
    """There are few, however large they are."""
    detector = YoungDetector()
    for look in range(1, 13):
        line = AllocationLine("a.py", 2, "f", "0", "buffer", look * GIB, look)
        detector.add(MemoryProfile(0.0, (line,)), GIB, look * 1000, float(look))

    assert detector.leaks == {}


HOLDING = """
import collections, queue, threading
import numpy as np

class History:
    def __init__(self):
        self.states = []
        self.last = collections.deque(maxlen=50)
        self.table = {number: np.zeros(3_000) for number in range(40)}

    def add(self, state):
        self.states.append({"w": state})  # adds
        self.last.append(state)

histories = {"best": History()}

def step():
    histories["best"].add(np.zeros(1000))

def load(batches, ended):
    for _ in range(80):
        batches.put(np.zeros(5_000))  # puts
    ended.wait(60)

def start(room):
    batches, ended = queue.Queue(room), threading.Event()
    threading.Thread(target=load, args=(batches, ended), daemon=True).start()
    return batches, ended
"""


def _holds(items: Any, number: int) -> bool:
    return bool(items.qsize() == number)


def test_what_holds_most_is_named_with_the_lines_that_add_to_it(tmp_path, monkeypatch):
    """
    A list in an object that a module refers to; not a larger table that does not grow,
    nor what has a maximum.
    """
    (tmp_path / "holding_histories.py").write_text(HOLDING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    program = importlib.import_module("holding_histories")
    lines = SourceLineFinder(jax)
    monkeypatch.setattr(lines, "is_user", lambda file: file.startswith(f"{tmp_path}"))
    for _ in range(20):
        program.step()
    finder = HolderFinder(lines)
    assert not finder.largest(1000).name
    for _ in range(80):
        program.step()

    found = finder.largest(1000)
    assert (found.name, found.kind) == ("History.states", "list")
    assert (found.items, found.bytes) == (100, 100 * 8000)
    line = HOLDING.partition("# adds")[0].count("\n") + 1
    assert found.adds == (f"holding_histories.py:{line}",)

    # A queue without a maximum, which only its thread and a function know.
    for room, name in ((70, "History.states"), (0, "load.batches")):
        batches, ended = program.start(room)
        until(partial(_holds, batches, room or 80), "batches in the queue")
        found = finder.largest(1000)
        assert found.name == name
        for _ in range(room and 80 - room):
            batches.get()
        ended.set()
    assert (found.kind, found.items, found.bytes) == ("Queue", 80, 80 * 40_000)
    line = HOLDING.partition("# puts")[0].count("\n") + 1
    assert found.adds == (f"holding_histories.py:{line}",)
    sys.modules.pop("holding_histories")
