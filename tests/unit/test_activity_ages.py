"""How long activities run, and how long ago they finished."""

import asyncio
import gc
import threading
import time

import pytest

import jaxmon
from jaxmon.catalog import ACTIVITY_AGE_SECONDS, ACTIVITY_RUNNING_SECONDS
from jaxmon.indicators.timeline import FAILED, FINISHED, ActivityAges
from tests.helpers.indicators import recording


AGE, RUNNING = ACTIVITY_AGE_SECONDS.name, ACTIVITY_RUNNING_SECONDS.name


class Marker:
    """What is open until its end."""

    def __init__(self):
        self.end = []


class Clock:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    """Return the clock of `ages`."""
    return Clock()


@pytest.fixture
def ages(clock):
    """Return ages of no activities."""
    return ActivityAges(clock=clock)


def values(ages):
    """Return by name how long activities run, and how long ago they finished."""
    return tuple(
        {one.split('"')[1]: value for one, value in family.samples}
        for family in ages.collect()
    )


def test_an_activity_runs_and_then_has_finished(ages, clock):
    """It has no age until it finishes, and both go on with the clock."""
    assert values(ages) == ({}, {})
    marker = Marker()
    ages.begin("save", marker)
    clock.now += 5
    assert values(ages) == ({"save": 5}, {})

    marker.end.extend((clock.now, FINISHED))
    clock.now += 7
    assert values(ages) == ({"save": 0}, {"save": 7})


def test_the_oldest_runs_and_the_latest_has_finished(ages, clock):
    """Of several of one name, in whichever order they end."""
    markers = [Marker() for _ in range(3)]
    for marker in markers:
        ages.begin("save", marker)
        clock.now += 1
    markers[2].end.extend((clock.now, FINISHED))
    clock.now += 1
    markers[0].end.extend((clock.now, FINISHED))
    clock.now += 1

    assert values(ages) == ({"save": 4}, {"save": 1})
    ages.begin("load", Marker())
    assert values(ages) == ({"save": 4, "load": 0}, {"save": 1})


def test_what_did_not_finish_has_no_age(ages, clock):
    """One that failed, that was forgotten or that never began no longer runs."""
    for end in ([101.0, FAILED], [101.0], [101.0, 105.0], [0.0]):
        marker = Marker()
        ages.begin("save", marker)
        marker.end += end
    clock.now += 10

    assert values(ages) == ({"save": 0}, {})


def test_those_that_ended_are_forgotten(ages, clock):
    """Activities of which one is always open take no memory, and none is lost."""
    last = Marker()
    ages.begin("save", last)
    for _ in range(10_000):
        marker = Marker()
        ages.begin("save", marker)
        clock.now += 1
        last.end.extend((clock.now, FINISHED))
        last = marker
    assert len(ages._named["save"].opened) <= 64

    assert values(ages) == ({"save": 1}, {"save": 0})


@pytest.mark.parametrize("read", [False, True])
def test_those_that_finished_are_counted(ages, clock, read):
    """Whenever it is read: one within another, and one that failed, do not count."""
    assert ages.count("save") == 0
    for number in range(1, 101):
        outer, inner, failing = Marker(), Marker(), Marker()
        for marker, how in ((failing, FAILED), (outer, FINISHED), (inner, FINISHED)):
            ages.begin("save", marker)
            clock.now += 1
            if marker is not outer:
                marker.end.extend((clock.now, how))
        if read:
            assert ages.count("save") == number
        outer.end.extend((clock.now, FINISHED))
    assert ages.count("save") == 100


def test_activities_of_a_program_have_ages():
    """In a block, function or coroutine on any thread; a failed call never finished."""

    @jaxmon.activity("function")
    def function():
        pass

    @jaxmon.activity("generator")
    def generator():
        yield 1

    @jaxmon.activity("coroutine")
    async def coroutine():
        await asyncio.sleep(0)

    async def cancelled():
        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    @jaxmon.activity("cancelled")
    async def forever():
        await asyncio.Event().wait()

    with recording() as recorded:
        before = time.perf_counter()
        with jaxmon.activity("block"):
            (running,) = recorded.values(RUNNING, activity="block")
            assert 0 < running <= time.perf_counter() - before
            assert recorded.values(AGE) == []
        ended = time.perf_counter()
        function()
        assert list(generator()) == [1]
        asyncio.run(coroutine())
        thread = threading.Thread(target=jaxmon.activity("thread")(function))
        thread.start()
        thread.join()
        with pytest.raises(ZeroDivisionError), jaxmon.activity("failed"):
            _ = 1 / 0
        asyncio.run(cancelled())
        left = jaxmon.activity("forgotten")(generator)()
        next(left)
        del left
        gc.collect()
        read = time.perf_counter()

        (age,) = recorded.values(AGE, activity="block")
        assert read - ended <= age <= time.perf_counter() - before
        for name in ("function", "generator", "coroutine", "thread"):
            assert recorded.values(RUNNING, activity=name) == [0]
            assert len(recorded.values(AGE, activity=name)) == 1
        for name in ("failed", "cancelled", "forgotten"):
            assert recorded.values(RUNNING, activity=name) == [0]
            assert recorded.values(AGE, activity=name) == []
        assert recorded.errors


def test_loops_and_compiles_have_ages_of_their_own():
    """What jaxmon marks by itself is not an activity of the program."""
    with recording() as recorded:
        for _ in jaxmon.steps(range(3)):
            pass
        assert recorded.values(RUNNING) == []
        assert recorded.values(AGE) == []
