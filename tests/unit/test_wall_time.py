"""The ledger of time: how looks add up, and when a program does not get on."""

import gc
import json
import linecache
import multiprocessing.process
import os
import sys
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink import frames, other_threads
from jaxmon.agent.jaxlink.activity import Doing
from jaxmon.agent.jaxlink.call_sites import FETCH
from jaxmon.agent.jaxlink.source_lines import UNKNOWN
from jaxmon.agent.walltime import looks
from jaxmon.agent.walltime.ledger import (
    BLOCKED,
    LedgerPeriod,
    LookEntry,
    ThreadState,
    TimeLedger,
)
from jaxmon.agent.walltime.tasks import (
    Starvation,
    Task,
    WorkerProcesses,
    seconds_held,
)
from jaxmon.agent.walltime.time_by_call import (
    CallCount,
    CallPauses,
    DeviceSeconds,
    DeviceTime,
    LatestCalls,
    LineProgress,
    TimeByCallRows,
)
from jaxmon.clocks import perf_counter
from jaxmon.facts.rank import COLUMNS, MOST_ROWS, CallPause
from jaxmon.facts.walltime import Period, PlaceTime, WallTime
from jaxmon.job.comparison import time_by_call


STEP = LookEntry("", "device", "train.py:9", "train.step")
LOAD = LookEntry("", "data_wait", "data.py:4", "")
READ = LookEntry("", "fetch", "train.py:10", "")
THINK = LookEntry("", "python", "train.py:12", "")


def period(*looks: tuple[LookEntry, ThreadState, float]) -> LedgerPeriod:
    found = LedgerPeriod()
    for entry, how, seconds in looks:
        found.add(entry, how, seconds)
    return found


def test_looks_add_up_to_the_wall_time():
    """Whatever is found, and however it is corrected, no time is lost or made up."""
    found = period(
        (STEP, ThreadState.WAITING, 3.0),
        (LOAD, ThreadState.RUNNING, 2.0),
        (READ, ThreadState.STOPPED, 1.5),
        (THINK, ThreadState.RUNNING, 0.5),
    )

    assert sum(found.corrected().values()) == pytest.approx(found.seconds) == 7.0


def test_short_python_is_found_where_it_stops():
    """Python that ends in a read is no read, but its line is only about right."""
    found = period((READ, ThreadState.WAITING, 6.0), (READ, ThreadState.STOPPED, 4.0))

    assert found.corrected() == {READ: 6.0, READ._replace(state="python"): 4.0}


def test_ends_of_long_python_belong_to_it():
    """A loader that works for long stretches is not blamed on the call after it."""
    found = period((LOAD, ThreadState.RUNNING, 9.0), (STEP, ThreadState.STOPPED, 3.0))

    assert found.corrected() == {LOAD: 12.0}


def test_a_share_is_known_the_better_the_more_looks_there_are():
    """Half of a hundred looks is half within ten percent, of ten thousand, in one."""
    few, many = LedgerPeriod(), LedgerPeriod()
    few.looks, many.looks = 100, 10_000

    assert few.error(0.5) == pytest.approx(0.108, abs=0.001)
    assert many.error(0.5) == pytest.approx(0.0099, abs=0.0001)
    assert LedgerPeriod().error(0.5) == 1.0


def test_the_ledger_forgets_all_but_the_last_minutes():
    """What is lately is not what has been since the start."""
    ledger = TimeLedger()
    for _ in range(10):
        ledger.add(STEP, ThreadState.WAITING, 60.0)
    for _ in range(6):
        ledger.add(LOAD, ThreadState.WAITING, 60.0)

    assert ledger.lately().corrected() == {LOAD: 360.0}
    assert ledger.by_state() == {"device": 600.0, "data_wait": 360.0}


def test_waiting_in_a_marked_activity_is_expected():
    """The metric tells it apart: nobody is told of a loop that rests on purpose."""
    ledger = TimeLedger()
    ledger.add(LookEntry("", "blocked", "train.py:2", ""), ThreadState.WAITING, 2.0)
    ledger.add(LookEntry("rest", "blocked", "train.py:3", ""), ThreadState.WAITING, 3.0)
    ledger.add(
        LookEntry("rest", "data_wait", "train.py:3", ""), ThreadState.WAITING, 4.0
    )

    assert ledger.by_state() == {"blocked": 2.0, "marked": 3.0, "data_wait": 4.0}


def test_places_are_bounded():
    """A program with any number of lines takes no more memory."""
    found = LedgerPeriod()
    for line in range(5_000):
        found.add(THINK._replace(place=f"a.py:{line}"), ThreadState.RUNNING, 1.0)

    assert len(found.entries[ThreadState.RUNNING]) <= 201
    assert found.seconds == sum(found.corrected().values()) == 5_000


def test_a_thread_that_never_wakes_does_the_same_thing():
    """It counts from when it began, and is compared with what was usual."""
    progress = LineProgress(LatestCalls(dict))
    for time in range(10):
        progress.seen(LOAD, 1, time * 2.0, cpu=0.001)
        progress.seen(STEP, 1, time * 2.0 + 1, cpu=0.001)
    for time in range(20, 90):
        progress.seen(LOAD, 1, float(time), cpu=0.0)

    now = progress.describe(90.0)
    assert (now.state, now.seconds) == ("data_wait", 70.0)
    assert (now.longest_before, now.changes) == (1.0, 20)
    assert progress.in_jax == 19.0


def test_a_function_is_traced_at_changing_lines():
    """It counts from the first of them; another function begins anew."""
    calls = {"train.step": CallCount(1, 1)}
    progress = LineProgress(LatestCalls(lambda: calls))
    for time in range(10):
        traced = STEP._replace(state="compile", place=f"model.py:{time}")
        progress.seen(traced, 1, float(time), cpu=1.0)

    now = progress.describe(10.0)
    assert (now.place, now.seconds) == ("model.py:9", 9.0)
    progress.seen(traced._replace(function="train.loss"), 1, 10.0, cpu=1.0)
    assert progress.describe(11.0).seconds == 1.0


def test_a_program_that_calls_gets_on():
    """The same line at every look is progress as long as functions are called."""
    calls = iter(range(1_000))
    counted = LatestCalls(lambda: {"step": CallCount(next(calls))})
    progress = LineProgress(counted)
    for time in range(100):
        progress.seen(STEP, 1, float(time), cpu=0.001)

    assert progress.describe(100.0).seconds <= 2.0


def test_a_call_repeats_what_ran_the_same_program() -> None:
    """Of the functions called latest; after a compile it is not known how long."""
    counts = iter(
        [
            {"step": CallCount(5, 1), "other": CallCount()},
            {"step": CallCount(105, 1)},
            {"step": CallCount(105, 1)},
            {"step": CallCount(105, 1), "evaluate": CallCount(1, 1)},
            {"step": CallCount(305, 2), "evaluate": CallCount(1, 1)},
            {"step": CallCount(306, 2), "evaluate": CallCount(2, 1)},
        ]
    )
    calls, found = LatestCalls(lambda: next(counts)), []
    for second in range(1, 7):
        calls.count(float(second))
        assert not calls.count(second + 0.5)
        found.append((calls.called, calls.repeats))

    assert found == [
        (("step",), 4),
        (("step",), 104),
        (("step",), 104),
        (("evaluate",), 0),
        (("step",), 0),
        (("step", "evaluate"), 1),
    ]


def test_the_first_compile_on_a_line_is_no_usual_call() -> None:
    """A step that compiled for a minute is late after a second all the same."""
    progress = LineProgress(LatestCalls(dict))
    progress.seen(STEP._replace(state="compile"), 1, 0.0, cpu=1.0)
    progress.seen(STEP, 1, 60.0, cpu=1.0)
    progress.seen(READ, 1, 60.5, cpu=1.0)
    progress.seen(STEP, 1, 61.0, cpu=1.0)

    assert progress.describe(62.0).longest_there == 0.5


def test_stacks_are_not_read_while_the_collector_is_due(monkeypatch):
    """A frame of another thread is an object, and making one may run the collector."""
    monkeypatch.setattr(other_threads, "_IN_ALLOCATIONS", True)
    me, threshold = threading.get_ident(), gc.get_threshold()
    try:
        gc.set_threshold(100_000, *threshold[1:])
        (stack,) = other_threads.read_stacks(lambda _: [me]).values()
        gc.set_threshold(1, *threshold[1:])
        with pytest.raises(other_threads.NotNowError):
            other_threads.read_stacks(lambda _: [me])
    finally:
        gc.set_threshold(*threshold)

    name = "test_stacks_are_not_read_while_the_collector_is_due"
    (here,) = [at for at in stack if at.code.co_name == name]
    assert here.names is globals()
    assert "read_stacks" in linecache.getline(here.code.co_filename, here.line)
    assert not frames.held


def test_the_pace_is_that_of_calls() -> None:
    """The age is that of the latest call, and a usual pause the longest but one."""
    calls = [0]
    pace = CallPauses(lambda: calls[0])
    pace.check(100.0, compiles=False)
    assert pace.describe(101.0) == CallPause(None, 0.0)

    now = 200.0
    for pause in (1.0, 40.0, 1.0, 7.0, 5.0):
        calls[0] += 3
        pace.check(now, compiles=False)
        now += pause
    calls[0] += 1
    pace.check(now, compiles=False)
    assert pace.describe(now + 6.0) == CallPause(6.0, 7.0)


def test_a_pause_for_a_compile_is_not_usual() -> None:
    """Else the first compile of a job would hide hangs that are as long."""
    calls = iter((1, 1, 2, 2, 3))
    pace = CallPauses(lambda: next(calls))
    for now, compiles in (
        (1, False),
        (50, True),
        (100, False),
        (150, True),
        (200, False),
    ):
        pace.check(float(now), compiles=compiles)
    assert pace.describe(200.0) == CallPause(0.0, 0.0)


def test_a_thread_without_a_processor_is_starved() -> None:
    """The part of the time that it waits is that of the latest seconds."""

    class Waiting(Task):
        seconds = 0.0

        def waited(self) -> float | None:
            return self.seconds

    task, starvation = Waiting(os.getpid()), Starvation()
    for now, seconds, ratio in ((10, 1, None), (12, 3, None), (20, 9, 0.8), (25, 9, 0)):
        task.seconds = float(seconds)
        starvation.check(task, float(now))
        assert starvation.ratio == ratio
    starvation.check(Waiting(1), 26.0)
    assert starvation.ratio is None


class Samples(DeviceSeconds):
    """A device that has worked for so many seconds since the last time."""

    def __init__(self) -> None:
        super().__init__(tuple)

    def since(self, now: float, calls: float) -> DeviceTime:
        return DeviceTime(now / 100, calls, is_known=True)


def column(course: TimeByCallRows, name: str) -> list[float]:
    return [float(row.split()[COLUMNS.index(name)]) for row in course.describe()]


def test_the_course_has_what_the_time_of_the_calls_went_into() -> None:
    """Nothing is lost, however much is merged, and what held the process is apart."""
    course, now, calls = TimeByCallRows(Samples()), 100.0, 0
    course.look("python", now, 0.0)
    for number in range(40_000):
        now += 0.5
        state = ("fetch", "data_wait", "eager", "idle")[number % 4]
        course.look(state, now, 0.1 if state == "idle" else 0.0)
        if number % 2:
            calls += 1
            course.mark(calls, now, number / 100)
    rows = course.describe()
    assert len(rows) <= MOST_ROWS
    marked = sum(column(course, "seconds"))
    assert 20_000 - 4.0 <= marked <= 20_000
    assert sum(column(course, "calls")) == pytest.approx(calls, abs=4)
    for name in ("waits", "data_wait", "python"):
        assert sum(column(course, name)) == pytest.approx(marked / 4, abs=1.0)
    assert sum(column(course, "blocked")) == pytest.approx(marked / 5, abs=1.0)
    assert sum(column(course, "held")) == pytest.approx(marked / 20, abs=1.0)
    assert sum(column(course, "starved")) == pytest.approx(400.0, abs=0.1)
    seconds = column(course, "seconds")
    assert max(seconds[-12:]) <= 3.0
    assert max(seconds[-30:]) <= 6.5
    # What is old is not in a single row.
    assert marked - seconds[0] >= 900
    assert time_by_call(rows) is not None
    assert len(json.dumps(rows)) < 8192


def test_the_lead_lasts_no_longer_than_the_time_between_looks() -> None:
    """It is reported since the call, or the end of its work; what is held is apart."""
    course = TimeByCallRows(Samples())
    course.look("python", 10.0, 0.0)
    for now, held, lead in (
        (12.0, 0.0, (1.5, 0.0)),
        (14.0, 0.5, (3.5, 0.0)),
        (16.0, 0.0, (0.0, 0.25)),
        (18.0, 0.0, (0.0, 7.0)),
    ):
        course.look("python", now, held, lead)
    course.mark(1, 18.0, 0.0)
    assert column(course, "ahead") == [1.5 + 1.5]
    assert column(course, "behind") == [0.25 + 2.0]
    # Nor does a device work longer, if one sample stands for many calls.
    course.look("python", 20.0, 0.0)
    course.mark(1_000, 20.0, 0.0)
    assert column(course, "alone")[-1] == 2.0


def test_the_course_begins_anew_when_the_calls_in_common_are_known() -> None:
    """Until then all calls count; the numbers of the ranks must be comparable."""
    course = TimeByCallRows(Samples())
    for now, calls in ((10.0, 50), (20.0, 60), (30.0, 7), (40.0, 9)):
        course.look("fetch", now, 0.0)
        course.mark(calls, now, 0.0)
    assert column(course, "calls") == [7.0, 2.0]


def test_a_process_that_was_stopped_is_told_from_one_without_the_gil() -> None:
    """Who waits for the interpreter wakes up to ask for it, every few milliseconds."""
    waits = 0.3 / sys.getswitchinterval()
    assert seconds_held(0.3, 0.0, 0) == 0.3
    assert seconds_held(0.3, 0.0, round(waits)) == 0.0
    assert seconds_held(0.3, 0.0, round(waits / 2)) == pytest.approx(0.15)
    assert seconds_held(0.01, 0.0, 0) == 0.0
    # It may have been stopped before the timer was due.
    assert seconds_held(0.3, 0.1, 0) == pytest.approx(0.35)
    assert seconds_held(0.03, 0.1, 0) == pytest.approx(0.06)
    # Where the kernel counts no waits, nothing is known.
    assert seconds_held(0.3, 0.0, -1) == 0.0


def called(times: int, function: Function) -> None:
    """Call *function* so often."""
    for _ in range(times):
        function.entered_missed.add()


def test_device_seconds_are_those_of_samples_and_of_all_calls() -> None:
    """Each sample stands for the calls around it; what is old is not believed."""
    together, alone = Function("f", internal=False), Function("g", internal=False)
    devices = DeviceSeconds(lambda: [together])
    devices.executed(together, None, 0.25)
    other = Function("h", internal=False)
    for one, seconds in ((other, 0.5), (alone, 0.125)):
        devices.executed(one, None, seconds)
    called(10, together)
    called(30, alone)
    called(1, other)
    now = perf_counter()
    assert devices.since(now, 10) == DeviceTime(2.5, 4.25, is_known=True, function="g")
    assert devices.since(now, 0) == DeviceTime(0.0, 0.0, is_known=False)
    called(10, together)
    assert devices.since(now, 30) == DeviceTime(2.5, 0.0, is_known=False)
    called(10, together)
    assert devices.since(now + 60.0, 10) == DeviceTime(0.0, 0.0, is_known=False)


def test_the_state_of_a_thread_is_read_only_if_it_does_not_compute():
    """Each read of a file gives up the interpreter, and the next line waits for it."""
    ended = threading.Event()
    sleeper = threading.Thread(target=ended.wait)
    sleeper.start()
    mine, other = Task(threading.get_native_id()), Task(sleeper.native_id or 0)
    for task in (mine, other):
        task.cpu()
    try:
        assert mine.runs()
        assert not mine._state.opened
        while other.runs():  # until it waits
            other.cpu()
        assert other._state.opened
    finally:
        ended.set()
        other.close()


def test_workers_are_asleep_while_they_only_wake_up_to_wait_again():
    """A wait for a lock of JAX does so, and uses a tick now and then."""
    used = {7: 30, 8: 3}
    workers = WorkerProcesses(5.0, used.copy)
    assert workers.worked(100.0)
    assert not workers.asleep(104.0)
    for now in (105.0, 110.0, 115.0, 3600.0):
        used[8] += 1
        assert not workers.worked(now)
        assert workers.asleep(now + 1.0) == 2
    used[7] += 3
    assert not workers.asleep(3602.0)
    assert workers.worked(3605.0)
    assert not workers.asleep(3606.0)
    assert not workers.worked(3610.0)
    assert workers.asleep(3611.0) == 2
    del used[8]  # it has ended, and another one may begin
    assert workers.worked(3615.0)


def test_processes_are_counted_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that have been started, though some have ended; a name of another kind."""
    names = ["SpawnPoolWorker-7", "Process-9", "server-8080"]
    children = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr(multiprocessing.process, "_children", children)
    workers = WorkerProcesses(5.0, dict)
    workers.look(1.0)
    monkeypatch.setattr(multiprocessing.process, "_children", children[:1])
    workers.look(2.0)
    assert (workers.started, workers.at_once) == (9, 3)


@pytest.mark.parametrize(
    ("waits", "reads", "expected"),
    [
        ({"parked": True}, {"of_user": True}, FETCH),
        ({"parked": True}, {}, BLOCKED),  # a library's own thread
        ({"parked": True, "holds_loop": True}, {"of_user": True}, BLOCKED),
        ({}, {"of_user": True}, BLOCKED),  # a file, or a socket
    ],
)
def test_who_waits_for_a_thread_that_reads_results_waits_for_these(
    waits: dict[str, Any], reads: dict[str, Any], expected: str
) -> None:
    """As for the future of a writer; not if an event loop is blocked meanwhile."""
    seen, other = (
        looks._LookMemory(ident, doing, 0.0, ThreadState.WAITING, works=True)
        for ident, doing in (
            (1, Doing(BLOCKED, UNKNOWN)._replace(**waits)),
            (2, Doing(FETCH, UNKNOWN)._replace(**reads)),
        )
    )
    reader = SimpleNamespace(_read=lambda *_: [other])
    found, _ = looks.Looks._awaited(cast("looks.Looks", reader), seen, [seen], 0.0)

    assert found.doing.state == expected


def test_the_line_of_a_call_is_known_without_looks() -> None:
    """That of the latest call that was seen; one that looks found comes first."""
    time = WallTime(called={"step": "train.py:9"})
    assert (time.calls("step"), time.calls("other")) == ("train.py:9", "")
    looked = PlaceTime(state="device", place="train.py:7", function="step", seconds=1.0)
    time = time.replace(since_start=Period(places=(looked,)))
    assert time.calls("step") == "train.py:7"
