"""Counts without a lock: of what is added to, and of calls."""

import sys
import threading

import pytest

from jaxmon.agent import guard as allowance
from jaxmon.agent.counted import metered
from jaxmon.agent.guard import Allowance
from jaxmon.exposition.families import Tally


def test_a_tally_counts_from_zero() -> None:
    """Adding counts; reading does not."""
    tally = Tally()
    assert tally.value == 0
    tally.add()
    tally.add()

    assert tally.value == tally.value == 2


def test_a_tally_adds_many_at_once() -> None:
    """None, one or a thousand."""
    tally = Tally()
    for number in (0, 1, 1000):
        tally.add_many(number)

    assert tally.value == 1001


def test_few_events_are_all_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst, and as many per second as the rate allows, however long."""
    at = 0.0
    monkeypatch.setattr(allowance, "monotonic", lambda: at)
    allowed = Allowance(burst=50, rate=10, passes=16)

    assert [allowed.take() for _ in range(50)] == [1] * 50
    for _ in range(1000):
        at += 0.11
        assert allowed.take() == 1
    at += 1000
    assert [allowed.take() for _ in range(50)] == [1] * 50


def test_one_event_stands_for_those_that_passed(monkeypatch):
    """Of 10,000 in a second few are examined; sums are right, soon all are again."""
    at = 0.0
    monkeypatch.setattr(allowance, "monotonic", lambda: at)
    allowed = Allowance(burst=50, rate=10, passes=16)
    weights = []
    for _ in range(10_000):
        at += 0.0001
        weights.append(allowed.take())

    examined = [number for number, weight in enumerate(weights) if weight][50:]
    assert 9_950 / 20 < len(examined) < 9_950 / 12
    # In loops over a few things it is not always the same one.
    for period in range(2, 17):
        turns = [number % period for number in examined]
        assert {*turns} == {*range(period)}
    # Those after the latest one wait for the next.
    assert sum(weights) + allowed.passed() == 10_000
    at += 5
    later = [allowed.take() for _ in range(60)]
    assert sum(map(bool, later)) >= 36
    assert sum(later) + allowed.passed() == 60


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
