"""Threads inside the user's program: what starts, what waits, and what it leaves."""

import logging
import threading
from typing import Any

import pytest

from jaxmon.threads import (
    DaemonThread,
    Event,
    current,
    get_ident,
    is_named,
    is_ours,
    running,
    unlist,
)
from tests.helpers.processes import run_python, until


def test_a_thread_that_is_prevented_does_nothing() -> None:
    """It may be started all the same, and is prevented once."""
    called: list[str] = []
    thread = DaemonThread("t", lambda: called.append("ran"))
    assert [thread.prevent(), thread.prevent()] == [True, False]
    thread.start()
    thread.join()
    assert called == []


def test_a_thread_that_has_begun_cannot_be_prevented() -> None:
    """Its target runs once."""
    called: list[bool] = []
    thread = DaemonThread("t", lambda: called.append(thread.prevent()))
    thread.start()
    thread.join()
    assert called == [False]
    assert not thread.prevent()


def test_a_thread_is_known_to_us_and_not_to_threading() -> None:
    """It has a number and a name all the same."""
    before, begun, go = threading.enumerate(), Event(), Event()
    found: list[object] = []

    def work() -> None:
        found.extend((current(), get_ident(), threading.get_native_id()))
        begun.set()
        go.wait()

    thread = DaemonThread("jaxmon-a-long-name", work)
    thread.join()  # it has not started
    assert not thread.is_alive()
    thread.start()
    assert begun.wait(90)
    thread.join(0.01)
    assert thread.is_alive()
    assert found[:2] == [thread, thread.ident]
    assert thread in running()
    assert is_ours(get_ident()) is False is not is_ours(thread.ident or 0)
    assert threading.enumerate() == before
    go.set()
    thread.join(90)
    assert not thread.is_alive()
    assert thread not in running()


def test_what_lists_a_thread_is_undone() -> None:
    """
    A log record, a finalizer and a handler make `threading` list the thread that they
    run on; it is gone when the record is handled, before each wait, and when another
    thread waits. A thread of the program stays listed.
    """
    log, seen = logging.getLogger("jaxmon.test"), list[object]()
    names: Any = vars(threading)
    before = names["_active"].copy(), set(names["_dangling"])

    class Names(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.extend((record.threadName, len(threading.enumerate())))
            threading.current_thread()

    handler = Names()
    log.addHandler(handler)
    log.addFilter(is_named)
    log.propagate = False
    ready, go = Event(), Event()

    def work() -> None:
        log.warning("one")
        Event().wait(0)
        seen.append(len(threading.enumerate()))
        threading.current_thread()
        ready.set()
        go.wait()  # lists nothing while it waits
        threading.current_thread()
        listing.set()
        with in_c:
            pass

    listing, in_c = threading.Event(), threading.Lock()
    in_c.acquire()
    thread = DaemonThread("jaxmon-test", work)
    try:
        thread.start()
        assert ready.wait(90)
        until(
            lambda: (names["_active"], set(names["_dangling"])) == before,
            "nothing of it",
        )
        go.set()
        assert listing.wait(90)
        assert names["_active"] != before[0]
        Event().wait(0)
        assert (names["_active"], set(names["_dangling"])) == before
        in_c.release()
        thread.join()
        log.warning("two")
    finally:
        log.removeHandler(handler)
        log.removeFilter(is_named)
    count = len(before[0])
    assert seen == ["jaxmon-test", count, count, threading.current_thread().name, count]

    listed: list[bool] = []

    def of_the_program() -> None:
        unlist()
        listed.append(threading.get_ident() in names["_active"])

    other = threading.Thread(target=of_the_program)
    other.start()
    other.join()
    assert listed == [True]


def test_an_event_lets_all_waiters_continue() -> None:
    """Whoever waits, and however often it is set; and not after it is cleared."""
    event, through = Event(), list[bool]()
    assert not event.wait(0)
    assert not event.wait(-1)

    def wait() -> None:
        through.append(event.wait())

    waiters = [DaemonThread("t", wait) for _ in range(3)]
    for one in waiters:
        one.start()
    event.set()
    event.set()
    for one in waiters:
        one.join(90)
    assert through == [True] * 3
    assert event.wait()
    assert event.is_set()
    event.clear()
    assert not event.is_set()
    assert not event.wait(0)


FORKING = """
import os, threading
from jaxmon.threads import DaemonThread, Event, get_ident, is_ours, running
go, ready = Event(), Event()
def work():
    ready.set()
    while True:
        threading.current_thread()
        go.wait(0.001)
threads = [DaemonThread("t", work) for _ in range(3)]
for one in threads:
    one.start()
assert ready.wait(90)
assert all(map(is_ours, (one.ident for one in threads))) and not is_ours(get_ident())
if (pid := os.fork()) == 0:
    alone = not running() and not any(is_ours(one.ident) for one in threads)
    threads[0].join()  # does not wait
    os._exit(0 if alone and not threads[0].is_alive() else 1)
print(os.waitpid(pid, 0)[1], len(running()), all(one.is_alive() for one in threads))
"""


def test_threads_end_with_their_process() -> None:
    """A child has none of them, and exits wait for none."""
    result = run_python("-c", FORKING).ok()

    assert (result.out, result.err) == ("0 3 True\n", "")


def test_without_threads_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that could not start is not alive, and nothing waits for it."""
    from jaxmon import threads

    def refuse(*_: object) -> int:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr(threads._thread, "start_new_thread", refuse)
    thread = DaemonThread("t", print)
    with pytest.raises(RuntimeError):
        thread.start()
    thread.join()
    assert not thread.is_alive()
    assert thread.prevent()
