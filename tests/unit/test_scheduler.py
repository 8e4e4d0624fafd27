"""The threads of an agent: jobs, routines and polls, failures, and their end."""

import functools
import gc
import random
import threading
import weakref
from collections.abc import Iterator

import pytest

from jaxmon.agent.guard import LIMIT, Guard
from jaxmon.agent.scheduler import Scheduler
from jaxmon.agent.worker import Worker
from jaxmon.threads import DaemonThread
from tests.helpers.agents import Busy, threads
from tests.helpers.processes import refuse_threads, run_python, until


@pytest.fixture
def worker(scheduler: Scheduler) -> Iterator[Worker]:
    """Return a worker with place for two jobs, stopped after the test."""
    one = Worker("test", scheduler, limit=2)
    yield one
    one.stop()


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


def test_jobs_wait_for_others_but_not_for_long(scheduler, guard):
    """What is gathered is done at once if awaited, much, or at the stop."""
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
def test_worker_that_keeps_failing_is_switched_off(scheduler, guard):
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


def test_routine_runs_again_and_again_beside_jobs(scheduler, guard):
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
def test_routine_that_keeps_failing_switches_the_site_off(scheduler, guard):
    """As jobs do, where the worker is one that gives up."""
    worker = Worker("test", scheduler, every=0.001, routine=fail)
    worker.start()
    until(lambda: not guard.on("test"), "the site to be off")

    assert guard.failures() == {"test": LIMIT}
    worker.stop()


@pytest.mark.contained
def test_routine_that_is_not_given_up_goes_on(scheduler, guard):
    """However often it fails, it is tried again, and jobs are done beside it."""
    worker = Worker("test", scheduler, every=0.001, routine=fail, gives_up=False)
    worker.start()
    until(lambda: guard.failures().get("test", 0) > LIMIT, "more failures")

    assert worker.drain(30)
    worker.stop()


def test_routine_comes_less_often_while_it_fails(scheduler, guard):
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
def test_thread_that_cannot_start_is_a_failure(worker, guard, monkeypatch):
    """Nothing is raised, and the next job tries again."""
    with monkeypatch.context() as patch:
        refuse_threads(patch)
        worker.submit(print)
    assert guard.failures() == {"test": 1}
    done = threading.Event()
    worker.submit(done.set)
    assert done.wait(90)


def test_start_that_is_entered_again_makes_one_thread(worker, monkeypatch):
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


def test_pauses_vary_within_the_spread() -> None:
    """They stay within it; the program's random numbers are its own."""
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


FORKING = """
import os, threading, time
from jaxmon.agent.guard import Guard
from jaxmon.agent.scheduler import Scheduler
from jaxmon.agent.worker import Worker

children = []
begun, held = threading.Event(), threading.Event()

def fork():
    begun.set()
    held.wait()
    if child := os.fork():
        children.append(child)

scheduler = Scheduler(Guard())
Worker("a", scheduler).submit(fork)
begun.wait()
with scheduler._lock:  # which the thread takes after a job
    held.set()
    while not children:
        time.sleep(0.001)
    assert os.waitpid(children[0], 0)[0] == children[0]
"""


def test_child_that_a_job_forks_ends() -> None:
    """Its only thread is that of the job; another held the scheduler's lock."""
    assert run_python("-c", FORKING).code == 0
