"""JAX's own place for a look at calls, while its owner and we take turns at it."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest

from jaxmon.agent.jaxlink.hooks import PostCallHook


ROUNDS = 2_000


@pytest.fixture
def place() -> Iterator[PostCallHook]:
    """Return the place, which is empty before and after."""
    place = PostCallHook(jax)
    assert place._get() is None
    yield place
    debug_nans(on=False)
    assert place._get() is None


def debug_nans(*, on: bool) -> None:
    jax.config.update("jax_debug_nans", on)


def ours(*_: Any) -> None:
    """Look at a call."""


def test_the_place_is_taken_and_left(place: PostCallHook) -> None:
    """While one of our users has it, no other gets it; afterwards it is empty."""
    assert place.take(ours)
    assert place.take(ours)
    assert not place.take(lambda *_: None)
    assert place._get() is ours

    place.leave(ours)

    assert place._get() is None


def test_debugging_comes_first(place: PostCallHook) -> None:
    """Who debugs keeps the place, and takes it from us."""
    place.take(ours)
    debug_nans(on=True)

    assert place._get() is place._theirs
    assert not place.take(ours)
    place.leave(ours)
    assert place._get() is place._theirs


def comes_true(condition: Callable[[], bool]) -> bool:
    """
    Return whether *condition* holds within some turns of the other thread, which may be
    between an assignment and the look at the settings that follows it.
    """
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0)
    return False


def test_threads_that_debug_and_sample_at_once(place: PostCallHook) -> None:
    """However threads take turns, the place is JAX's whenever a setting asks for it."""
    ended = threading.Event()

    def sample() -> None:
        while not ended.is_set():
            place.take(ours)
            place.leave(ours)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=sample)
    thread.start()
    wrong = []
    try:
        for _ in range(ROUNDS):
            debug_nans(on=True)
            wrong.append(not comes_true(lambda: place._get() is place._theirs))
            debug_nans(on=False)
            wrong.append(not comes_true(lambda: place._get() is not place._theirs))
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)

    assert not any(wrong)
