"""When calls are re-run, and what bounds their cost."""

from collections import Counter
from typing import Any

import pytest

from jaxmon.agent.checks.shadow import Turns, has_room
from jaxmon.clocks import monotonic


FUNCTION: Any = "step"


def fail(error: Exception) -> None:
    raise error


class Device:
    """A device with 1,000 bytes of memory."""

    def __init__(self, used: int | None) -> None:
        self._used = used

    def memory_stats(self) -> Any:
        if self._used is None:
            return None
        return {"bytes_limit": 1000, "bytes_in_use": self._used}


@pytest.mark.parametrize(
    ("interval", "taken", "pause"), [(60, 0.1, 60), (60, 2.0, 200), (0.1, 30, 3000)]
)
def test_re_runs_take_at_most_a_hundredth_of_the_time(interval, taken, pause):
    """The next is due after a hundred times what one took, if that is longer."""
    turns, before = Turns(interval, 1000), monotonic()
    assert turns.has(FUNCTION)
    assert turns.begin()
    assert not turns.begin()
    assert not turns.has(FUNCTION)
    turns.over(taken)

    assert before + pause <= turns.due <= monotonic() + pause
    assert not turns.busy
    turns.over()
    assert turns.due >= before + pause


def test_without_memory_a_function_is_tried_later_and_after_an_error_never() -> None:
    """Memory may be free again; an error of a re-run is a failure of ours."""
    turns = Turns(0.1, 1000)
    with turns.attempt(FUNCTION):
        fail(MemoryError())
    assert turns.reasons() == {FUNCTION: "little_memory"}
    assert turns.due > monotonic() + 1
    turns.due = 0
    assert turns.has(FUNCTION)
    turns.succeeded(FUNCTION)
    assert turns.reasons() == {}

    with pytest.raises(ValueError, match="unexpected"), turns.attempt(FUNCTION):
        fail(ValueError("unexpected"))
    turns.due = 0
    assert not turns.has(FUNCTION)
    assert turns.reasons() == {FUNCTION: "failed"}


def test_a_fifth_of_each_device_stays_free() -> None:
    """One device that is nearly full suffices; one that reports nothing is empty."""
    free, full, silent = Device(500), Device(790), Device(None)
    assert has_room(Counter({free: 300, full: 10, silent: 10**9}))
    assert not has_room(Counter({free: 301}))
    assert not has_room(Counter({free: 1, full: 11}))


def test_memory_of_a_re_run_is_limited_per_device() -> None:
    """What a call returned, times the sets that a re-run needs, on one device."""

    class Sharding:
        addressable_devices = (Device(0), Device(0))

        def shard_shape(self, shape: Any) -> Any:
            return (shape[0] // 2,)

    class Array:
        sharding, shape = Sharding(), (20,)

        class dtype:  # noqa: N801 - as an array has it
            itemsize = 4

    fitting, full = Turns(0.1, 120), Turns(0.1, 119)
    assert fitting.fits(FUNCTION, [Array()], sets=3)
    assert fitting.reasons() == {}
    assert not full.fits(FUNCTION, [Array()], sets=3)
    assert full.reasons() == {FUNCTION: "too_large"}
