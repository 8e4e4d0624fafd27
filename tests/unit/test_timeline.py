"""Where the wall time goes."""

import _thread
import random
import threading

import pytest

import jaxmon
from jaxmon.catalog import TIME_SECONDS
from jaxmon.indicators import activities
from jaxmon.indicators.marks import LoopCounts
from jaxmon.indicators.timeline import Timeline
from tests.helpers.indicators import recording
from tests.helpers.processes import until


class Clock:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    """Return the clock of `timeline`."""
    return Clock()


@pytest.fixture
def timeline(clock):
    """Return a timeline that nothing was marked on."""
    return Timeline(50, clock=clock)


def seconds(timeline):
    """Return seconds by activity, those without any left out."""
    return {
        one.split('"')[1]: value
        for family in timeline.collect()
        if family.metric is TIME_SECONDS
        for one, value in family.samples
        if value
    }


def open_loop(timeline):
    """Open a loop's activity."""
    return timeline.open_loop([], LoopCounts("train"))


def close(timeline, mark):
    """End what *mark* represents, like the code that opened it."""
    mark.end.append(timeline._clock())


def on_a_thread(work):
    """Run *work* on a thread and return what it returns."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_there_is_no_time_before_the_first_mark(timeline, clock):
    """A program that marks nothing has no such figures."""
    clock.now += 5
    timeline.compiled(1)

    assert timeline.open_compile([]) is None
    assert timeline.collect()[0].samples == []


def test_the_innermost_activity_has_the_time(timeline, clock):
    """What is between marks is other, and all of it adds up."""
    outer = timeline.open("evaluate", [])
    clock.now += 1
    inner = timeline.open("checkpoint", [])
    clock.now += 2
    close(timeline, inner)
    clock.now += 4
    close(timeline, outer)
    clock.now += 8

    assert seconds(timeline) == {"evaluate": 5, "checkpoint": 2, "other": 8}


def test_activities_that_overlap_without_end_are_forgotten(timeline, clock):
    """Of tasks of which one is always active, those that ended take no memory."""
    mark = timeline.open("first", [])
    for number in range(10_000):
        following = timeline.open(f"task{number % 2}", [])
        clock.now += 1
        close(timeline, mark)
        mark = following
    clock.now += 1

    assert seconds(timeline) == {"task0": 5000, "task1": 5001}
    assert len(timeline._owner.marks) <= 64


def test_activities_may_end_in_any_order(timeline, clock):
    """The innermost of those still open goes on; ending twice is harmless."""
    first, second = timeline.open("first", []), timeline.open("second", [])
    close(timeline, first)
    clock.now += 1
    close(timeline, second)
    close(timeline, second)
    clock.now += 2

    assert seconds(timeline) == {"second": 1, "other": 2}


def test_a_loop_waits_then_works(timeline, clock):
    """Work on a step counts as what is around the loop, step where nothing is."""
    loop = open_loop(timeline)
    clock.now += 1
    timeline.turn(loop, clock.now, finished=False)
    clock.now += 2
    mark = timeline.open("evaluate", [])
    inner = open_loop(timeline)
    clock.now += 4
    timeline.turn(inner, clock.now, finished=False)
    clock.now += 8
    close(timeline, inner)
    close(timeline, mark)
    close(timeline, loop)

    assert seconds(timeline) == {"data_wait": 5, "step": 2, "evaluate": 8}


def test_time_that_was_read_stays_where_it_was(timeline, clock):
    """A scrape may come between reading the clock and renaming: nothing decreases."""
    loop = open_loop(timeline)
    clock.now += 4
    at = clock.now
    clock.now += 2
    assert seconds(timeline) == {"data_wait": 6}
    timeline.turn(loop, at, finished=False)
    clock.now += 1

    assert seconds(timeline) == {"data_wait": 6, "step": 1}


def test_activities_that_ended_within_a_step_do_not_have_its_time(timeline, clock):
    """Whether or not they have been dropped when the step ends."""
    loop = open_loop(timeline)
    for _ in range(3):
        timeline.turn(loop, clock.now, finished=False)
        clock.now += 1
        mark = timeline.open("evaluate", [])
        clock.now += 2
        close(timeline, mark)
        clock.now += 4
        timeline.turn(loop, clock.now, finished=True)
        clock.now += 8

    assert seconds(timeline) == {"step": 15, "evaluate": 6, "data_wait": 24}


@pytest.mark.parametrize("seed", range(20))
def test_turns_that_are_noted_count_as_those_that_are_accounted_for(seed):
    """At once or later, whatever is marked, compiled or read in between."""
    found: list[tuple[object, ...]] = []
    for notes in (False, True):
        chosen, clock = random.Random(seed), Clock()  # noqa: S311 - nothing secret
        timeline, counts, reads = Timeline(50, clock=clock), LoopCounts("train"), []
        mark, end = timeline.open_loop([], counts), list[float]()
        for number in range(200):
            clock.now += chosen.random()
            innermost = timeline.innermost()
            assert innermost is not None
            if notes and innermost.name in {"data_wait", "step"}:
                mark.turns.append(clock.now if number % 2 == 0 else -clock.now)
            else:
                timeline.turn(mark, clock.now, finished=number % 2 == 1)
            clock.now += chosen.random()
            event = chosen.choice(("", "", "", "read", "open", "pause", "compile"))
            if event == "read":
                reads.append(timeline.spent())
            elif event == "compile":
                timeline.compiled(0.01)
            elif event:
                end = []
                opens = timeline.open_pause if event == "pause" else timeline.open
                opens(event, end)
                clock.now += chosen.random()
                if chosen.random() < 0.7 or event == "open":
                    end.append(clock.now)
        mark.end.append(clock.now)
        clock.now += 1
        timeline.settle(mark)
        assert counts.steps == 100
        counted = (counts.waited, counts.seconds.sum, counts.last_step)
        found.append((reads, timeline.spent(), *counted))

    assert found[0] == found[1]


def test_other_threads_run_beside_the_time(timeline, clock):
    """Their activities and compiles take nothing away from the first thread's."""
    timeline.open("evaluate", [])

    def work():
        mark = timeline.open("load", [])
        clock.now += 1
        timeline.compiled(1)
        assert timeline.open_compile([]) is None
        close(timeline, mark)

    on_a_thread(work)

    assert seconds(timeline) == {"evaluate": 1}


def test_a_loop_takes_the_time_over(timeline, clock):
    """From a thread that has only activities, not from one that runs loops."""
    timeline.open("evaluate", [])
    clock.now += 1

    def train():
        timeline.open("outside", [])
        clock.now += 2
        loop = open_loop(timeline)
        clock.now += 4
        timeline.turn(loop, clock.now, finished=False)
        clock.now += 8
        on_a_thread(lambda: open_loop(timeline))
        clock.now += 16

    on_a_thread(train)

    assert seconds(timeline) == {"evaluate": 3, "data_wait": 4, "outside": 24}


def test_a_thread_that_ended_is_replaced(timeline, clock):
    """By the next that marks something; what it left open has the time until then."""
    on_a_thread(lambda: open_loop(timeline))
    clock.now += 1
    timeline.open("evaluate", [])
    clock.now += 2

    assert seconds(timeline) == {"data_wait": 1, "evaluate": 2}


def test_a_thread_that_python_did_not_start_is_replaced(timeline, clock):
    """Threads of C++ servers report no end, and `threading` does not list them."""
    threads = threading.enumerate()

    def work():
        close(timeline, timeline.open("load", []))

    _thread.start_new_thread(work, ())
    until(lambda: timeline.collect()[0].samples, "its mark")
    until(lambda: not timeline._owner.is_alive, "its end")
    timeline.open("serve", [])
    clock.now += 5

    assert seconds(timeline)["serve"] == 5
    assert threading.enumerate() == threads


def test_an_activity_ends_from_another_thread(timeline, clock):
    """A generator may be closed by whichever thread collects it."""
    mark = timeline.open("evaluate", [])
    clock.now += 1
    on_a_thread(lambda: close(timeline, mark))
    clock.now += 2

    assert seconds(timeline) == {"evaluate": 1, "other": 2}


def test_compiles_that_were_read_too_early_are_known(timeline, clock):
    """What readers, and compiles within, had not attributed to a compile by then."""
    timeline.open("evaluate", [])
    clock.now += 10
    timeline.spent()
    clock.now += 2
    timeline.compiled(2)  # within the next one
    assert timeline.late == 0
    clock.now += 1
    timeline.spent()
    clock.now += 4
    timeline.compiled(9)

    assert seconds(timeline) == {"evaluate": 11, "compile": 6}
    assert timeline.late == 3


def test_compiles_are_charged_to_those_who_wait(timeline, clock):
    """While they run, or afterwards, unless there was a scrape in between."""
    timeline.open("evaluate", [])
    clock.now += 4
    timeline.compiled(3)
    mark = timeline.open_compile([])
    clock.now += 8
    close(timeline, mark)
    assert seconds(timeline) == {"evaluate": 1, "compile": 11}
    clock.now += 2
    timeline.compiled(50)

    assert seconds(timeline) == {"evaluate": 1, "compile": 13}


def test_names_are_bounded(clock):
    """Too many share other, which is counted as an overflow; our own need no room."""
    timeline = Timeline(2, clock=clock)
    for name in ("a", "b", "c", "d"):
        mark = timeline.open(name, [])
        clock.now += 1
        close(timeline, mark)
    open_loop(timeline)
    clock.now += 1

    assert seconds(timeline) == {"a": 1, "b": 1, "other": 2, "data_wait": 1}
    assert timeline.labels.overflow == 2


# --- what users call ----------------------------------------------------------


def test_threads_that_share_an_activity_end_their_own():
    """One thread's leaving it does not end it for another."""
    shared, inside, leave = (
        jaxmon.activity("work"),
        threading.Event(),
        threading.Event(),
    )

    def work():
        with shared:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=work)
    with recording() as recorded:
        with shared:
            thread.start()
            inside.wait()
        assert recorded.timeline._owner is not None
        assert [one for one in recorded.timeline._owner.marks if not one.end] == []
        leave.set()
        thread.join()
        assert shared._open == []


def test_an_exception_passes_and_is_told():
    """The activity ends, the caller gets the very exception, the agent hears of it."""
    problem = ValueError()
    with recording() as recorded:
        with pytest.raises(ValueError) as caught, jaxmon.activity("work"):  # noqa: PT011
            raise problem

        assert caught.value is problem
        assert recorded.errors == [problem]
        mark = recorded.timeline.open_compile([])
        assert mark is not None
        assert mark.stack.marks == [mark]


def test_nothing_happens_where_nobody_records():
    """Blocks run and functions return, also across a beginning and an end."""
    early = jaxmon.activity("early")
    with early:
        assert jaxmon.activity("work")(len)("ab") == 2
    early.__enter__()
    with recording() as recorded:
        early.__exit__(None, None, None)
        late = jaxmon.activity("late")
        late.__enter__()
    late.__exit__(None, None, None)

    assert recorded.values(TIME_SECONDS.name, activity="early") == []


@pytest.mark.contained
@pytest.mark.parametrize("method", ["open"])
def test_a_failure_of_ours_is_contained(monkeypatch, method):
    """The program goes on; the failure is counted, and we stop trying."""

    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr(Timeline, method, fail)
    with recording() as recorded:
        for _ in range(20):
            with jaxmon.activity("work"):
                pass

        assert recorded.failures.failures() == {activities.SITE: 10}
