"""Counts without a lock: of what is added to, of calls, and sums of such counts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jaxmon.agent.counters import Meters, Tally, metered


def test_a_tally_counts_from_zero() -> None:
    """Adding counts; reading does not."""
    tally = Tally()
    assert tally.value == 0
    tally.add()
    tally.add()

    assert tally.value == tally.value == 2


def test_threads_that_add_lose_no_count() -> None:
    """Sixteen threads that add at once are all counted."""
    tally, barrier = Tally(), threading.Barrier(16)

    def work() -> None:
        barrier.wait(90)
        for _ in range(2_000):
            tally.add()

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)

    assert tally.value == 32_000


def test_a_meter_counts_calls_and_changes_none() -> None:
    """Arguments, results and errors are those of the function."""
    meter = metered(int)

    assert meter("12", base=3) == 5
    with pytest.raises(ValueError, match="invalid literal"):
        meter("x")
    assert meter.cache_info() == 2


def test_a_sum_keeps_what_meters_that_left_had_counted() -> None:
    """
    A meter that is gone counts on as a number, once, and the sum keeps none alive.
    """
    meters = Meters()
    first, second = metered(int), metered(int)
    leave, _ = meters.add(first), meters.add(second)
    for _ in range(3):
        first(), second()
    assert meters.value == 6
    leave()
    leave()
    first()

    assert meters.value == 6
    second()
    assert meters.value == 7


def test_threads_whose_meters_come_and_go_lose_no_count() -> None:
    """
    However many leave at once, what is kept of them stays small, and no reading is too
    high.
    """
    meters, barrier = Meters(), threading.Barrier(9)
    read: list[int] = []

    def work() -> None:
        barrier.wait(30)
        for number in range(500):
            meter = metered(int)
            leave: Callable[[], Any] = meters.add(meter)
            for _ in range(number % 5):
                meter()
            leave()

    def look() -> None:
        barrier.wait(30)
        read.extend(meters.value for _ in range(500))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        threads.append(threading.Thread(target=look))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    assert meters.value == 8 * 500 * 2
    assert max(read) <= meters.value
    assert meters._there == {}
