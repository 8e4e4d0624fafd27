"""Watchers: things that are looked at until they are over, on the shared threads."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from jaxmon.agent.guard import LIMIT, Guard
from jaxmon.agent.scheduler import Scheduler
from jaxmon.agent.worker import Watcher, Worker
from tests.helpers.agents import Busy, threads
from tests.helpers.processes import refuse_threads, until


class Thing:
    """Something that is over after some looks."""

    def __init__(self, looks: int, *, every: float = 0.001) -> None:
        self.left, self.every = looks, every
        self.seen: list[float] = []

    def look(self) -> float | None:
        self.seen.append(time.perf_counter())
        self.left -= 1
        return self.every if self.left else None


class Lasting(Thing):
    """Something that is over when that is said."""

    def __init__(self) -> None:
        super().__init__(0)
        self.over = False

    def look(self) -> float | None:
        super().look()
        return None if self.over else self.every


class Broken:
    """Something that cannot be looked at."""

    def look(self) -> float | None:
        raise ValueError


@pytest.fixture
def watcher(scheduler: Scheduler) -> Iterator[Watcher]:
    """Return a watcher with two places, stopped after the test."""
    one = Watcher("test", scheduler, limit=2)
    yield one
    one.stop()


def over(*things: Thing) -> Callable[[], bool]:
    return lambda: not any(thing.left for thing in things)


def kept_nowhere(reference: weakref.ref[Thing]) -> Callable[[], bool]:
    def gone() -> bool:
        gc.collect()
        return reference() is None

    return gone


def test_each_thing_is_looked_at_until_it_is_over(watcher: Watcher) -> None:
    """At its own pace, never early, and not once more."""
    fast, slow = Thing(20), Thing(3, every=0.02)
    assert watcher.submit(fast)
    assert watcher.submit(slow)
    until(over(fast, slow), "both to be over")

    for thing in (fast, slow):
        steps = zip(thing.seen, thing.seen[1:], strict=False)
        assert all(later - earlier >= thing.every for earlier, later in steps)
    assert (len(fast.seen), len(slow.seen)) == (20, 3)
    assert watcher.spent > 0


def test_what_finds_no_place_is_refused_and_counted(watcher: Watcher) -> None:
    """A place is free again when something is over."""
    first, second, third = Lasting(), Thing(10**9), Thing(1)
    assert watcher.submit(first)
    assert watcher.submit(second)
    until(lambda: first.seen and second.seen, "a look at both")
    assert not watcher.submit(third)
    assert watcher.refused.value == 1
    first.over = True

    until(lambda: watcher.submit(third), "a place")


def test_nothing_that_is_over_is_kept(watcher: Watcher) -> None:
    """Neither by the thread while it waits for more."""
    thing = Thing(2)
    watcher.submit(thing)
    until(over(thing), "it to be over")
    reference = weakref.ref(thing)
    del thing

    until(kept_nowhere(reference), "it to be let go")


@pytest.mark.contained
def test_one_that_fails_costs_itself_only(watcher: Watcher, guard: Guard) -> None:
    """The failure is counted, and the other thing is watched on."""
    other = Thing(5)
    watcher.submit(Broken())
    watcher.submit(other)
    until(over(other), "the other to be over")

    assert guard.failures() == {"test": 1}


@pytest.mark.contained
def test_a_watcher_that_keeps_failing_ends(watcher, guard, caplog):
    """It forgets what it watched, takes nothing more, and its thread is gone."""
    caplog.set_level("CRITICAL", "jaxmon")  # tracebacks in records keep frames
    thing = Thing(10**9, every=10.0)
    watcher.submit(thing)
    reference = weakref.ref(thing)
    del thing
    for _ in range(LIMIT):
        until(lambda: watcher.submit(Broken()) or not guard.on("test"), "a place")
    until(lambda: not guard.on("test"), "the watcher to be switched off")

    until(kept_nowhere(reference), "it to be let go")
    assert not watcher.submit(Thing(1))


def test_stop_forgets_what_is_watched(scheduler: Scheduler) -> None:
    """Without a wait; what comes later is rejected, a second stop harmless."""
    watcher = Watcher("test", scheduler)
    thing = Thing(10**9, every=3600.0)
    watcher.submit(thing)
    seen, reference = thing.seen, weakref.ref(thing)
    del thing
    until(lambda: seen, "a look")
    watcher.stop()
    watcher.stop()

    assert kept_nowhere(reference)()
    assert not watcher.submit(Thing(1))


@pytest.mark.contained
def test_without_threads_nothing_is_kept(monkeypatch, watcher, guard, caplog):
    """Where no thread can start, what was to be watched is let go at once."""
    refuse_threads(monkeypatch)
    caplog.set_level("CRITICAL", "jaxmon")
    thing = Thing(1)
    watcher.submit(thing)
    reference = weakref.ref(thing)
    del thing

    assert kept_nowhere(reference)()
    assert guard.failures() == {"test": 1}


def test_a_job_that_takes_long_delays_neither_others_nor_what_is_short(scheduler):
    """
    After a second others have a thread, at once if they are urgent, until it is done.
    Of one worker two jobs are never done at once.
    """
    hung, busy, done = Busy(), Busy(), threading.Event()
    first, second, third = (Worker(name, scheduler) for name in ("a", "b", "c"))
    first.submit(hung)
    hung.began.wait(90)
    thing = Thing(20)
    assert Watcher("short", scheduler).submit(thing)
    until(over(thing), "it to be over")
    first.submit(done.set)
    second.submit(busy)
    busy.began.wait(90)
    third.submit(urgent := Busy(), urgent=True)
    urgent.began.wait(90)

    assert len(threads()) == 3
    assert not done.is_set()
    for one in (hung, busy, urgent):
        one.may_end.set()
    assert first.drain(90)
    assert done.is_set()
    until(lambda: len(threads()) == 1, "the others to leave")
