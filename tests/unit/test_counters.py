"""Counts without a lock: of what is added to, and of calls."""

import threading

import pytest

from jaxmon.agent import guard as allowance
from jaxmon.agent.counted import metered
from jaxmon.agent.guard import Allowance
from jaxmon.exposition.families import Tally
from tests.helpers.agents import at_once, switching_often


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
    allowed = Allowance(burst=50, rate=10)

    assert [allowed.take() for _ in range(50)] == [1] * 50
    for _ in range(1000):
        at += 0.11
        assert allowed.take() == 1
    at += 1000
    assert [allowed.take() for _ in range(50)] == [1] * 50


def test_one_event_stands_for_those_that_passed(monkeypatch):
    """However fast they are, so many per second are examined; sums are right."""
    at = 0.0
    monkeypatch.setattr(allowance, "monotonic", lambda: at)
    for pace in (15, 100, 10_000, 1_000_000):
        allowed = Allowance(burst=50, rate=10)
        weights = []
        began = at
        for _ in range(50_000):
            at += 1 / pace
            weights.append(allowed.take())

        examined = [number for number, weight in enumerate(weights) if weight]
        assert 0.6 < len(examined[70:]) / (max(at - began, 0.1) * 10) < 1.4 or (
            pace > 10_000 and len(examined) < 80
        )
        # In loops over a few things it is not always the same one.
        for period in range(2, 17) if pace == 100 else ():
            turns = [number % period for number in examined[50:]]
            assert {*turns} == {*range(period)}
        # Those after the latest one wait for the next.
        assert sum(weights) + allowed.passed() == 50_000
    # After a second, the pause of a loop that has become slower is over.
    at += 5
    assert allowed.passed() == 0
    assert [allowed.take() for _ in range(50)] == [1] * 50


def test_threads_that_take_lose_no_count() -> None:
    """Weights of eight threads, and what passed since, are all events."""
    allowed, barrier = Allowance(burst=10, rate=100), threading.Barrier(8)
    sums: list[int] = []

    def work() -> None:
        barrier.wait(90)
        sums.append(sum([allowed.take() for _ in range(20_000)]))

    with switching_often():
        at_once(*[work] * 8)

    assert sum(sums) + allowed.passed() == 160_000


def test_threads_that_add_lose_no_count() -> None:
    """Sixteen threads that add at once are all counted."""
    tally, barrier = Tally(), threading.Barrier(16)

    def work() -> None:
        barrier.wait(90)
        for _ in range(2_000):
            tally.add()

    with switching_often():
        at_once(*[work] * 16)

    assert tally.value == 32_000


def test_a_meter_counts_calls_and_changes_none() -> None:
    """Arguments, results and errors are those of the function."""
    meter = metered(int)

    assert meter("12", base=3) == 5
    with pytest.raises(ValueError, match="invalid literal"):
        meter("x")
    assert meter.cache_info() == 2
