"""The threads of an agent: jobs, routines and polls, failures, and their end."""

from __future__ import annotations

import functools
import gc
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from jaxmon.agent.guard import LIMIT, Guard
from jaxmon.agent.scheduler import Scheduler
from jaxmon.agent.worker import Watcher, Worker
from jaxmon.threads import DaemonThread, running
from tests.support import refuse_threads, until


class Busy:
    """A job that begins, and goes on until it may end."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.began.set()
        self.may_end.wait(90)


@pytest.fixture
def guard() -> Guard:
    """Return a guard that has seen nothing."""
    return Guard()


@pytest.fixture
def scheduler(guard: Guard) -> Iterator[Scheduler]:
    """Return a scheduler that is stopped after the test, with all that it runs."""
    one = Scheduler(guard)
    yield one
    one.stop()
    assert threads("jaxmon-worker", "jaxmon-scheduler") == []


@pytest.fixture
def worker(scheduler: Scheduler) -> Iterator[Worker]:
    """Return a worker with place for two jobs, stopped after the test."""
    one = Worker("test", scheduler, limit=2)
    yield one
    one.stop()


def threads(*names: str) -> list[DaemonThread]:
    """Return the threads for jobs, or those with one of the *names*."""
    return [one for one in running() if one.name in (names or ("jaxmon-worker",))]


def fail() -> None:
    """Fail."""
    raise LookupError


def test_thread_starts_with_the_first_job(worker: Worker) -> None:
    """Without a job there is no thread; with many there is one, and order is kept."""
    assert threads() == []
    done: list[int] = []
    assert worker.submit(lambda: done.append(1))
    assert worker.drain(30)
    assert worker.submit(lambda: done.append(2))
    assert worker.drain(30)
    assert done == [1, 2]
    assert len(threads()) == 1


def test_jobs_beyond_the_limit_are_refused(worker: Worker) -> None:
    """What waits is bounded, and who comes later is counted, not blocked."""
    busy = Busy()
    assert worker.submit(busy)
    busy.began.wait(90)
    assert [worker.submit(print) for _ in range(4)] == [True, True, False, False]
    assert worker.refused.value == 2
    busy.may_end.set()
    assert worker.drain(30)
    assert worker.submit(print)


def test_done_jobs_are_not_kept(worker: Worker) -> None:
    """While the thread waits, it refers to nothing that a job held."""

    class Held:
        def method(self) -> None:
            pass

    held = Held()
    gone = weakref.ref(held)
    worker.submit(held.method)
    assert worker.drain(30)
    del held
    until(lambda: gc.collect() is not None and gone() is None, "the job to be gone")


def test_drain_waits_for_what_was_submitted_before(worker: Worker) -> None:
    """It returns after the jobs, or reports that they took too long."""
    assert worker.drain(0)
    assert threads() == []
    busy = Busy()
    worker.submit(busy)
    assert not worker.drain(0.01)
    busy.may_end.set()
    assert worker.drain(30)
    worker.stop()
    assert not worker.drain(30)


def test_jobs_wait_for_others_but_not_for_long(
    scheduler: Scheduler, guard: Guard
) -> None:
    """
    What is gathered is done at once if it is waited for, if it is much, or at the stop.
    """
    done: list[int] = []
    worker = Worker("gathering", scheduler, limit=8, gather=3600)
    try:
        worker.submit(lambda: done.append(0))
        assert worker.drain(90)
        for number in range(1, 6):
            worker.submit(functools.partial(done.append, number))
        until(lambda: len(done) == 6, "half of the limit")
        worker.submit(lambda: done.append(6))
    finally:
        worker.stop()

    assert done[:6] == [*range(6)]
    assert guard.failures() == {}


def test_stop_drops_what_waits_and_ends_the_thread(worker: Worker) -> None:
    """The job under way is finished, the others are forgotten, later ones refused."""
    busy, done = Busy(), list[int]()
    worker.submit(busy)
    busy.began.wait(90)
    worker.submit(lambda: done.append(1))
    worker.stop(wait=False)
    busy.may_end.set()
    until(lambda: worker._done is None, "the job to end")
    assert done == []
    assert not worker.submit(lambda: done.append(2))
    worker.start()
    worker.stop()


def test_stop_of_the_worker_by_its_own_job(worker: Worker) -> None:
    """A job may stop its worker without waiting for itself."""
    worker.submit(worker.stop)
    until(lambda: worker._stopped and worker._done is None, "the job to end")


@pytest.mark.contained
def test_failing_job_leaves_the_others(worker: Worker, guard: Guard) -> None:
    """A failure is counted under the worker's name, and the next job runs."""
    done = threading.Event()
    worker.submit(fail)
    worker.submit(done.set)
    assert done.wait(90)
    assert guard.failures() == {"test": 1}


@pytest.mark.contained
def test_worker_that_keeps_failing_is_switched_off(
    scheduler: Scheduler, guard: Guard
) -> None:
    """It stops, accepts no more jobs, drops queued ones, and delays nothing."""
    worker = Worker("test", scheduler, limit=100)
    busy, gone = Busy(), []

    class Held:
        def method(self) -> None:
            gone.append("ran")

    worker.submit(busy)
    busy.began.wait(90)
    for _ in range(LIMIT):
        worker.submit(fail)
    held = Held()
    reference = weakref.ref(held)
    worker.submit(held.method)
    del held
    drained: list[bool] = []
    waiter = threading.Thread(target=lambda: drained.append(worker.drain(3600)))
    waiter.start()
    busy.may_end.set()
    waiter.join(90)
    assert drained == [False]
    until(lambda: gc.collect() is not None and reference() is None, "it to be let go")
    assert gone == []
    assert not worker.submit(print)
    assert not worker.drain(30)
    worker.stop()


def test_routine_runs_again_and_again_beside_jobs(
    scheduler: Scheduler, guard: Guard
) -> None:
    """It runs after each interval, not at once, and jobs find their place between."""
    runs, ran = list[int](), threading.Event()

    def routine() -> None:
        runs.append(1)
        if len(runs) == 3:
            ran.set()

    worker = Worker("test", scheduler, every=0.01, routine=routine)
    worker.start()
    worker.start()
    assert worker.submit(print)
    assert worker.drain(30)
    assert ran.wait(90)
    assert len(threads()) == 1
    worker.stop()


@pytest.mark.contained
def test_routine_that_keeps_failing_switches_the_site_off(
    scheduler: Scheduler, guard: Guard
) -> None:
    """As jobs do, where the worker is one that gives up."""
    worker = Worker("test", scheduler, every=0.001, routine=fail)
    worker.start()
    until(lambda: not guard.on("test"), "the site to be off")

    assert guard.failures() == {"test": LIMIT}
    worker.stop()


@pytest.mark.contained
def test_routine_that_is_not_given_up_goes_on(
    scheduler: Scheduler, guard: Guard
) -> None:
    """However often it fails, it is tried again, and jobs are done beside it."""
    worker = Worker("test", scheduler, every=0.001, routine=fail, gives_up=False)
    worker.start()
    until(lambda: guard.failures().get("test", 0) > LIMIT, "more failures")

    assert worker.drain(30)
    worker.stop()


def test_routine_comes_less_often_while_it_fails(
    scheduler: Scheduler, guard: Guard
) -> None:
    """
    Half as often after each failure, down to a sixteenth; as before once it works. One
    that is given up comes as often as ever until then.
    """
    worker = Worker("test", scheduler, every=10, routine=print, gives_up=False)
    rests = [worker._rests(fine=fine) for fine in (*[False] * 6, True, False)]
    assert rests == [20, 40, 80, 160, 160, 160, 10, 20]

    worker = Worker("test", scheduler, every=10, routine=print)
    assert [worker._rests(fine=False) for _ in range(3)] == [10, 10, 10]


@pytest.mark.contained
def test_thread_that_cannot_start_is_a_failure(
    worker: Worker, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Where there are no threads left nothing is raised, and the next job tries again.
    """
    with monkeypatch.context() as patch:
        refuse_threads(patch)
        worker.submit(print)
    assert guard.failures() == {"test": 1}
    done = threading.Event()
    worker.submit(done.set)
    assert done.wait(90)


def test_start_that_is_entered_again_makes_one_thread(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector may submit a job while the thread is starting."""
    start = DaemonThread.start
    done: list[int] = []

    def start_and_collect(thread: DaemonThread) -> None:
        worker.submit(lambda: done.append(1))
        start(thread)

    monkeypatch.setattr(DaemonThread, "start", start_and_collect)
    worker.submit(lambda: done.append(0))
    monkeypatch.undo()
    assert worker.drain(30)
    assert sorted(done) == [0, 1]
    assert len(threads()) == 1


def pauses(spread: float) -> list[float]:
    """Return a hundred of them for a routine that runs every ten seconds."""
    worker = Worker("test", Scheduler(Guard()), every=10, routine=print, spread=spread)
    return [worker._pause() for _ in range(100)]


def test_pauses_are_as_asked_for() -> None:
    """Without a spread, one is like the other."""
    assert set(pauses(0)) == {10}


def test_pauses_vary_within_the_spread() -> None:
    """
    They differ by no more than asked for; the program's random numbers stay its own.
    """
    random.seed(1)
    expected = random.random()  # noqa: S311 - nothing secret
    random.seed(1)
    found = pauses(0.4)

    assert 6 <= min(found) < 9
    assert 11 < max(found) <= 14
    assert random.random() == expected  # noqa: S311 - nothing secret


# --- several workers --------------------------------------------------------------


def test_workers_share_a_thread_and_take_turns(scheduler: Scheduler) -> None:
    """One has a job done after the other; twenty of one delay another's by one."""
    done: list[str] = []
    busy, first, second = Busy(), Worker("a", scheduler), Worker("b", scheduler)
    first.submit(busy)
    busy.began.wait(90)
    for _ in range(20):
        first.submit(lambda: done.append("a"))
    second.submit(lambda: done.append("b"))
    busy.may_end.set()

    assert first.drain(90)
    assert second.drain(90)
    assert "b" in done[:3]
    assert len(done) == 21
    assert len(threads()) == 1


def test_a_job_that_takes_long_delays_neither_others_nor_what_is_short(
    scheduler: Scheduler,
) -> None:
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


# --- what is polled --------------------------------------------------------------


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
def test_a_watcher_that_keeps_failing_ends(
    watcher: Watcher, guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
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
    """
    Without waiting for it; what comes later is refused, and a second stop is harmless.
    """
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
def test_without_threads_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch,
    watcher: Watcher,
    guard: Guard,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where no thread can start, what was to be watched is let go at once."""
    refuse_threads(monkeypatch)
    caplog.set_level("CRITICAL", "jaxmon")
    thing = Thing(1)
    watcher.submit(thing)
    reference = weakref.ref(thing)
    del thing

    assert kept_nowhere(reference)()
    assert guard.failures() == {"test": 1}
