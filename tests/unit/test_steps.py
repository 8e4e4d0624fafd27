"""Loops that a program marks."""

import sys
import threading
import time
from functools import partial

import pytest

import jaxmon
from jaxmon.catalog import (
    DATA_WAIT_SECONDS,
    ITEMS,
    STEP_AGE_SECONDS,
    STEP_SECONDS,
    STEPS,
    TIME_SECONDS,
)
from jaxmon.indicators import steps
from jaxmon.indicators.loops import Loops, StepLoop
from jaxmon.indicators.timeline import Timeline
from tests.helpers.agents import at_once
from tests.helpers.indicators import recording


AGE = STEP_AGE_SECONDS.name


def test_each_batch_is_a_step(recorded):
    """The loop gets every batch, in order; steps are counted as they are finished."""
    got: list[str] = []
    for batch in jaxmon.steps(iter("abc")):
        assert recorded.value(STEPS.name, loop="train") == len(got)
        got.append(batch)

    assert got == ["a", "b", "c"]
    assert recorded.errors == []
    assert recorded.value(STEPS.name, loop="train") == 3
    assert recorded.value(f"{STEP_SECONDS.name}_count", loop="train") == 3
    assert recorded.value(DATA_WAIT_SECONDS.name, loop="train") > 0


def test_steps_take_the_whole_time_of_the_loop(recorded):
    """Waiting and working add up: no time falls between two steps."""
    pulled = []

    def loader():
        for number in range(200):
            pulled.append(time.perf_counter())
            yield number

    started = time.perf_counter()
    for _ in jaxmon.steps(loader()):
        last = time.perf_counter()
    spent = time.perf_counter() - started
    total = recorded.value(f"{STEP_SECONDS.name}_sum")

    assert last - pulled[0] <= total <= spent
    assert 0 < recorded.value(DATA_WAIT_SECONDS.name) < total


def test_the_start_of_a_loader_is_a_wait_for_data(recorded):
    """What `iter` takes, as to start worker processes, belongs to the first wait."""
    opened = []

    class Loader:
        def __iter__(self):
            began = time.perf_counter()
            while time.perf_counter() - began < 0.02:
                pass
            opened.append(time.perf_counter() - began)
            return iter("ab")

    loader = jaxmon.steps(Loader())
    started = time.perf_counter()
    for _ in range(3):
        list(loader)
    spent = time.perf_counter() - started

    waited = recorded.value(DATA_WAIT_SECONDS.name)
    assert sum(opened) <= waited <= recorded.value(f"{STEP_SECONDS.name}_sum") <= spent
    # The timeline begins with the first loop.
    activities = recorded.value(TIME_SECONDS.name, activity="data_wait")
    assert sum(opened[1:]) <= activities <= spent


@pytest.mark.parametrize(
    ("items", "expected"), [(32, 64), (len, 5), (lambda batch: batch[0], 5)]
)
def test_items_are_counted_with_their_step(recorded, items, expected):
    """As many for each step, or as many as a function finds in the batch."""
    for batch in jaxmon.steps([[2, 0], [3, 0, 0]], items=items, item="token"):
        assert len(recorded.values(ITEMS.name, item="token")) == 1
        assert recorded.value(ITEMS.name, item="token") < expected, batch

    assert recorded.value(ITEMS.name, loop="train", item="token") == expected


@pytest.mark.contained
def test_a_batch_that_cannot_be_counted_counts_nothing(recorded):
    """Not what the batch before it had, either."""
    list(jaxmon.steps(["abc", 4, "ab"], items=len))

    assert recorded.value(ITEMS.name) == 5
    assert recorded.value(STEPS.name) == 3


def test_without_items_there_is_no_such_series(recorded):
    """A count that was not requested is absent, not 0."""
    list(jaxmon.steps([1]))

    assert recorded.values(ITEMS.name) == []


def test_a_running_loop_has_the_age_of_its_last_step(recorded):
    """From its beginning to its end, however it ends; a finished loop is not stale."""
    before = time.perf_counter()
    run = iter(jaxmon.steps([1, 2]))
    assert recorded.values(AGE) == []
    next(run)
    (began,) = recorded.values(AGE, loop="train")
    assert 0 <= began <= time.perf_counter() - before

    loop = recorded.loops.of("train")
    loop.counts.last_step -= 100
    (hanging,) = recorded.values(AGE, loop="train")
    stepping = time.perf_counter()
    next(run)
    (stepped,) = recorded.values(AGE, loop="train")
    assert hanging >= 100
    assert 0 <= stepped <= time.perf_counter() - stepping

    assert next(run, None) is None
    assert recorded.values(AGE) == []


def test_the_age_of_a_step_does_not_depend_on_the_time_of_day(recorded, monkeypatch):
    """A host whose clock is an hour off, or set meanwhile, has the same age."""
    before = time.perf_counter()
    run = iter(jaxmon.steps([1, 2]))
    next(run)
    monkeypatch.setattr(time, "time", lambda: 3600.0)
    (age,) = recorded.values(AGE, loop="train")

    assert 0 <= age <= time.perf_counter() - before
    run.close()


def leave_by_break():
    for _ in jaxmon.steps([1, 2, 3]):
        break


def leave_by_return():
    def first():
        for batch in jaxmon.steps([1, 2, 3]):
            return batch
        return None

    assert first() == 1


def leave_by_exception():
    def fail():
        for _ in jaxmon.steps([1, 2, 3]):
            raise KeyError

    with pytest.raises(KeyError):
        fail()


def leave_by_close():
    run = iter(jaxmon.steps([1, 2, 3]))
    next(run)
    run.close()
    run.close()


def leave_by_dropping():
    next(iter(jaxmon.steps([1, 2, 3])))


def leave_a_generator():
    def batches():
        yield from jaxmon.steps([1, 2, 3])

    generator = batches()
    next(generator)
    generator.close()


def leave_on_another_thread():
    run = iter(jaxmon.steps([1, 2, 3]))
    next(run)
    thread = threading.Thread(target=run.close)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "leave",
    [
        leave_by_break,
        leave_by_return,
        leave_by_exception,
        leave_by_close,
        leave_by_dropping,
        leave_a_generator,
        leave_on_another_thread,
    ],
)
def test_a_loop_that_is_left_has_ended(recorded, leave):
    """Its open step is not counted, its time goes elsewhere, it does not stall."""
    leave()

    assert recorded.value(STEPS.name) == 0
    assert recorded.values(STEPS.name) == [0]
    assert recorded.values(AGE) == []
    with recorded.timeline._lock:
        assert [one for one in recorded.timeline._owner.marks if not one.end] == []


def test_an_exception_of_the_source_passes(recorded):
    """The caller gets the very exception; the loop has ended, its steps are counted."""
    problem = OSError("disk")

    def batches():
        yield 1
        raise problem

    with pytest.raises(OSError, match="disk") as caught:
        for _ in jaxmon.steps(batches()):
            pass

    assert caught.value is problem
    assert recorded.errors == [problem]
    assert recorded.value(STEPS.name) == 1
    assert recorded.values(AGE) == []


def test_a_loop_goes_on_where_it_was_left(recorded):
    """Of an iterator, a second loop gets the rest; of a list, all, as without us."""
    rest = jaxmon.steps(iter("abcd"))
    for _ in rest:
        break
    again = jaxmon.steps("ab")

    assert list(rest) == ["b", "c", "d"]
    assert [list(again), list(again)] == [["a", "b"], ["a", "b"]]
    assert recorded.value(STEPS.name) == 3 + 4


def test_several_loops_run_at_once(recorded):
    """Nested, under one name or several: each step counts for its own loop."""
    for _ in jaxmon.steps(range(3)):
        for _ in jaxmon.steps(range(2), loop="eval", items=10):
            assert len(recorded.values(AGE)) == 2
        for _ in jaxmon.steps(range(5)):
            pass
        assert len(recorded.values(AGE)) == 1

    assert recorded.value(STEPS.name, loop="train") == 3 + 15
    assert recorded.value(STEPS.name, loop="eval") == 6
    assert recorded.value(ITEMS.name, loop="eval", item="example") == 60


def test_sixty_four_threads_count_exactly(recorded):
    """No step and no item is lost, and no loop runs on."""
    start = threading.Barrier(64)

    def work(number):
        start.wait()
        for _ in jaxmon.steps(range(100), loop=f"loop{number % 4}", items=3):
            pass

    at_once(*[partial(work, n) for n in range(64)])

    for number in range(4):
        assert recorded.value(STEPS.name, loop=f"loop{number}") == 16 * 100
        assert recorded.value(ITEMS.name, loop=f"loop{number}") == 16 * 300
    assert recorded.values(AGE) == []


def test_labels_are_bounded():
    """Loops, and names of items, beyond the limit share one."""
    with recording(limit=2) as recorded:
        for name in ("a", "b", "c", "d"):
            list(jaxmon.steps([1], loop=name, items=1, item=f"item of {name}"))

        assert recorded.value(STEPS.name, loop="other") == 2
        assert recorded.value(ITEMS.name, loop="other", item="other") == 2
        assert recorded.overflow()["loop"] == 2
        assert recorded.overflow()["item"] == 2


# --- nobody records, or recording fails ---------------------------------------


def test_nothing_happens_where_nobody_records():
    """Loops run as without us."""
    assert list(jaxmon.steps("abc", items=len)) == ["a", "b", "c"]


def test_recording_may_begin_and_end_within_a_loop():
    """Steps that are begun and finished meanwhile are counted."""
    run = iter(jaxmon.steps(range(10)))
    next(run)
    with recording() as first:
        next(run)
        next(run)
        assert first.value(STEPS.name) == 1
    next(run)
    with recording() as second:
        next(run)
        next(run)
        assert second.value(STEPS.name) == 1
        assert list(run) == [6, 7, 8, 9]
        assert second.values(AGE) == []

    assert first.value(STEPS.name) == 1


def test_a_step_calls_few_functions_of_ours(recorded):
    """Most only note their times: each function takes a microsecond in a busy cache."""
    called = []

    def profile(frame, event, _):
        if event == "call":
            called.append(frame.f_code.co_name)

    run = iter(jaxmon.steps(range(1000)))
    next(run)
    sys.setprofile(profile)
    try:
        for _ in run:
            pass
    finally:
        sys.setprofile(None)

    assert recorded.value(STEPS.name) == 1000
    assert called.count("__next__") == 1000
    # Each is observed, and some account for those before them.
    assert len(called) <= 2.5 * 1000


def test_what_is_set_within_a_loop_is_noticed_at_its_next_step(recorded):
    """After thousands that only noted their times."""
    seen, counts = [], []
    run = iter(jaxmon.steps(range(100)))
    for number in run:
        if number == 50:
            recorded.loops.on_step = lambda loop: seen.append(loop.steps)
            recorded.loops.attend()
        elif number == 60:
            recorded.loops.on_step = None
        counts.append(recorded.loops.of("train").steps if number % 7 == 0 else number)

    assert seen == list(range(51, 61))
    assert counts == list(range(100))


@pytest.mark.contained
@pytest.mark.parametrize("items", [lambda batch: batch.nothing, -1, "many"])
def test_items_that_cannot_be_counted_are_contained(recorded, items):
    """The loop goes on; the failure is counted, and we stop asking."""
    assert list(jaxmon.steps(range(20), items=items)) == list(range(20))

    assert recorded.value(STEPS.name) == 20
    assert recorded.value(ITEMS.name) == 0
    assert recorded.failures.failures() == {steps.ITEMS_SITE: 10}


@pytest.mark.contained
@pytest.mark.parametrize(
    ("owner", "method"), [(StepLoop, "begin"), (Timeline, "turn"), (Loops, "changed")]
)
def test_a_failure_of_ours_is_contained(recorded, monkeypatch, owner, method):
    """The loop gets its batches, whatever fails."""

    def fail(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(owner, method, fail)
    for _ in range(2):
        assert list(jaxmon.steps(range(20))) == list(range(20))

    assert 1 <= recorded.failures.failures()[steps.SITE] <= 20
