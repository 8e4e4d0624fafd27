"""Counts without a lock: of what is added to, and of calls."""

from __future__ import annotations

import sys
import threading

import pytest

from jaxmon.agent.counters import Tally, metered


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
