"""A counter that needs no lock."""

from __future__ import annotations

import sys
import threading

from jaxmon.agent.counters import Tally


def test_counts_from_zero() -> None:
    """Adding counts; reading does not."""
    tally = Tally()
    assert tally.value == 0
    tally.add()
    tally.add()

    assert tally.value == tally.value == 2


def test_threads_lose_no_count() -> None:
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
