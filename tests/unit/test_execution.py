"""What is said of a sampled call, by what the looks at it have shown."""

import math

import pytest

from jaxmon.agent.sampling.execution import (
    CallTiming,
    ExecutionTimer,
    RollingMedian,
    SampleEstimates,
    SteadyPace,
)
from jaxmon.agent.sampling.window import DeviceWork
from jaxmon.clocks import perf_counter
from tests.helpers.processes import each


NEVER = -math.inf


class Unfinished:
    """An output of work that goes on."""

    def is_ready(self) -> bool:
        return False

    def is_deleted(self) -> bool:
        return False


def work(unfinished: float, finished: float) -> DeviceWork:
    """Return work that was seen unfinished and finished at these times."""
    seen = DeviceWork(())
    seen.unfinished, seen.finished = unfinished, finished
    return seen


def pace(*dispatches: float) -> SampleEstimates:
    recent = RollingMedian()
    for seconds in dispatches:
        recent.add(seconds)
    return SampleEstimates(recent)


def told(
    own: DeviceWork,
    *before: DeviceWork,
    called: tuple[float, float] = (10.0, 10.01),
    known: SampleEstimates | None = None,
    taken: float | None = None,
) -> list[float]:
    """Return what is recorded for a call."""
    found: list[float] = []
    call = CallTiming(*called, taken)
    if known is None:
        known = pace(0.02)
        known.determined.extend([True] * 3)
    execution = ExecutionTimer(call, before, own, known, found.append)
    assert execution.look() is None
    return found


@each(
    {
        "the device is idle": ([(10.99, 11.01)], 1),
        "behind other work": ([(12.98, 13.02), (11.0, 11.02), (11.98, 12.02)], 1),
        "in another order": ([(12.98, 13.02), (11.98, 12.02), (11.0, 11.02)], 1),
        "the other ended before": ([(10.99, 11.01), (9.0, 9.5)], 1),
        "the end of neither was seen": ([(NEVER, 10.02), (9.9, 10.005)], 0),
    }
)
def test_work_starts_with_the_call_or_at_the_end_of_the_last(looks, said):
    """The middle of the two looks at its end counts from there."""
    found = told(*[work(*seen) for seen in looks])

    assert found == [pytest.approx(1.0)] * said


@pytest.mark.parametrize(("gap", "said"), [(0.08, 1), (0.12, 0)])
def test_a_figure_that_may_be_too_wrong_is_not_said(gap: float, said: int) -> None:
    """Both ends together may leave 15 % of it to either side, not more."""
    known = pace(0.02)
    own, before = work(13.0 - gap, 13.0 + gap), work(12.0 - gap, 12.0)

    assert len(told(own, before, known=known)) == said
    # For the next looks it is good enough.
    assert list(known.work) == [pytest.approx(1.0, abs=gap)]


@pytest.mark.parametrize(("waits", "longest"), [([5.0] * 3, 0.01), ([5.0] * 8, 0.05)])
def test_a_long_queue_is_polled_rarely_if_queues_always_are(waits, longest):
    """After a read of results it may be short, and its end would be missed."""
    known = pace(0.02)
    known.work.append(0.1)
    known.queue.extend(waits)
    now = perf_counter()
    call = CallTiming(now, now)
    unfinished = DeviceWork([Unfinished()]), DeviceWork([Unfinished()])
    execution = ExecutionTimer(call, unfinished[:1], unfinished[1], known, print)

    assert execution.look() == pytest.approx(longest, rel=0.5)


def test_whether_a_run_counts_does_not_depend_on_its_length() -> None:
    """Runs too short for the looks are counted, lest the mean be too high."""
    known = pace(0.02)
    for _ in range(5):
        told(work(10.9, 11.1), known=known)

    assert told(work(10.4, 10.6), known=known) == [pytest.approx(0.5)]


def test_where_most_are_unknown_none_is_told() -> None:
    """Those that happen to be known are others than the rest."""
    known = pace(0.02)
    for _ in range(3):
        assert told(work(10.8, 11.2), known=known) == []

    for said in (0, 0, 1, 1):
        assert len(told(work(10.95, 11.05), known=known)) == said


@pytest.mark.parametrize(("taken", "said"), [(None, 1), (0.05, 1), (0.15, 0)])
def test_what_we_delayed_too_much_is_not_said(taken: float | None, said: int) -> None:
    """A tenth is the most that our own work may take from the program."""
    assert len(told(work(10.99, 11.01), taken=taken)) == said
    # Behind other work, the calling thread has long returned.
    behind = work(11.99, 12.01)
    assert len(told(work(12.99, 13.01), behind, taken=taken)) == 1


def test_the_first_runs_on_a_cpu_are_not_said() -> None:
    """
    One that was held up would be all that is known of a program whose others are too
    short to be known. An accelerator holds nothing up.
    """
    known = pace(0.02)

    for said in (0, 0, 0, 1):
        assert len(told(work(10.99, 11.01), known=known, taken=0.05)) == said
    assert len(told(work(10.99, 11.01), known=pace(0.02))) == 1


def test_a_longer_run_is_not_said_where_looks_delay_the_usual_too_much() -> None:
    """In it their share is less, but then only such runs would be recorded."""
    known = pace(0.02)
    told(work(10.99, 11.01), known=known, taken=0.01)
    for _ in range(6):
        assert told(work(10.99, 11.01), known=known, taken=0.15) == []
    told(work(10.99, 11.01), known=known, taken=0.15)

    assert told(work(12.99, 13.01), taken=0.2)
    assert told(work(12.99, 13.01), known=known, taken=0.45) == []


def test_a_call_that_was_held_up_may_have_launched_late() -> None:
    """What a call took longer than usual is room for the start of the work."""
    called = (10.0, 10.6)

    assert told(work(10.99, 11.01), called=called, known=pace(0.01, 0.01)) == []
    assert len(told(work(10.99, 11.01), called=called, known=pace(0.6, 0.6))) == 1


def test_work_within_the_call_takes_as_long_as_the_call() -> None:
    """Unless its calls return earlier: then it was too fast to see."""
    known = pace(0.02)
    within = work(NEVER, 10.02)

    assert told(within, known=known) == [pytest.approx(0.01)]
    told(work(10.99, 11.01), known=known)
    assert told(within, known=known) == []


def test_work_that_waited_says_nothing_about_where_calls_return() -> None:
    """What runs within a call on an idle device still queues behind work."""
    known = pace(0.02)
    told(work(12.98, 13.02), work(11.98, 12.02), known=known)

    assert told(work(NEVER, 10.02), known=known) == [pytest.approx(0.01)]


def test_lost_work_is_given_up() -> None:
    """An end that is never observed leaves nothing to record."""
    gone = work(11.0, 11.01)
    gone.lost = True

    assert told(work(12.98, 13.02), gone) == []
    assert told(gone) == []


def test_runs_that_were_held_up_do_not_stand_for_short_ones() -> None:
    """
    Where a run of usual length could not be told, a longer one is not either, though it
    is known well enough.
    """
    known = pace(0.02)
    for _ in range(5):
        assert told(work(10.02, 10.18), known=known) == []
    long = work(11.93, 12.07)

    assert told(long) == [pytest.approx(2.0)]
    assert told(long, known=known) == []


def test_longer_runs_of_a_function_that_can_be_told_are_told() -> None:
    """Looks at them come in longer steps, as they may."""
    known = pace(0.02)
    for _ in range(5):
        assert len(told(work(10.95, 11.05), known=known)) == 1

    assert told(work(19.5, 20.5), known=known) == [pytest.approx(10.0)]


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([0.0012] * 16 + [1.26], id="one delayed"),
        pytest.param(([0.001] * 9 + [0.1]) * 4, id="large and small"),
        pytest.param([0.3, 0.3], id="two"),
    ],
)
def test_no_sample_stands_for_all_calls(times: list[float]) -> None:
    """
    Of seventeen samples one was delayed: calls take what the others took. Programs of
    different lengths count by how often they run.
    """
    steady = SteadyPace()
    for seconds in times:
        steady.add(seconds)
    truth = sum(one for one in times if one < 1) / len(times)

    assert steady.pace == pytest.approx(truth, rel=0.1)


def test_one_sample_is_no_pace() -> None:
    """It may be the delayed one."""
    steady = SteadyPace()
    assert steady.pace is None
    steady.add(1.0)
    assert steady.pace is None
