"""Which sleeping threads wait for a lock: real threads, real stacks."""

import dis
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from jaxmon.agent.jaxlink.other_threads import (
    Position,
    Stack,
    read_stacks,
    repeatedly,
    waits_for_lock,
)
from tests.helpers.processes import until


def enter(lock: threading.Lock) -> None:
    with lock:
        pass


def acquire(lock: threading.Lock) -> None:
    if lock.acquire(timeout=60):
        lock.release()


def enter_condition(lock: threading.Lock) -> None:
    condition = threading.Condition(lock)
    with condition:
        pass


def enter_semaphore(lock: threading.Lock) -> None:
    semaphore = threading.Semaphore(0)

    def free() -> None:
        with lock:
            semaphore.release()

    threading.Thread(target=free).start()
    with semaphore:
        pass


def sleep_holding(lock: threading.Lock) -> None:
    own = threading.Lock()
    with own:
        while lock.locked():
            time.sleep(0.2)


def wait_for_event(lock: threading.Lock) -> None:
    done = threading.Event()
    while lock.locked():
        done.wait(0.2)


@contextmanager
def stack_in(
    function: Callable[[threading.Lock], None],
) -> Iterator[Callable[[], Stack]]:
    """Run *function* in a thread, with a lock that is held; return its stack."""
    lock = threading.Lock()
    thread = threading.Thread(target=function, args=(lock,))

    def stack() -> Stack:
        chosen = partial(read_stacks, lambda _: [thread.ident or 0])
        (found,) = repeatedly(chosen).values()
        return found

    with lock:
        thread.start()
        yield stack
    thread.join()


@pytest.mark.parametrize(
    "function",
    [
        *(enter, acquire, enter_condition, enter_semaphore),
        *(sleep_holding, wait_for_event),
    ],
)
def test_a_wait_for_a_lock_is_told_from_others(function):
    """However the lock is taken; a thread that sleeps while it holds one is no such."""
    with stack_in(function) as stack:
        until(lambda: len(stack()) >= 3, "it to begin")
        if function not in (sleep_holding, wait_for_event):
            until(lambda: waits_for_lock(stack()), "it to wait for the lock")
        else:
            time.sleep(0.1)
            assert not waits_for_lock(stack())


def test_leaving_is_no_wait() -> None:
    """Of the instructions of ``with lock:``, exactly the one that enters acquires."""
    offsets = [one.offset for one in dis.get_instructions(enter)]
    waiting = [
        offset
        for offset in offsets
        if waits_for_lock([Position(enter.__code__, offset, {})])
    ]

    assert len(waiting) == 1
