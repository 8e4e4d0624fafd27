"""Attempts of a run: whether they get on, and how long it takes after each."""

import pytest

from tests.helpers.runs import Simulated


@pytest.fixture
def run():
    """Return a run of which there was no attempt."""
    return Simulated()


def test_attempts_without_a_new_step_are_counted(run):
    """A crash loop counts up, also if it repeats old steps; a new step ends it."""
    run.resume(0, 5)
    for expected in (1, 2, 3):
        run.resume(0, 2)
        assert run.known.fruitless == expected
    run.do(4.0, "step", steps=4)
    assert run.known.fruitless == 0


def test_a_program_that_marks_no_steps_works_all_the_same(run):
    """Once it evidently does, its time is unknown, and no attempt in vain."""
    for _ in range(2):
        run.attempt()
        run.do(5.0)
        run.works = True
        run.do(1.0)
        assert run.known.fruitless == 0
        run.do(7.0)
    expected = {"startup": 6.0, "recovery": 6.0, "unknown": 14.0, "waiting": 0.0}
    assert run.known.seconds == expected


def test_calls_before_a_loop_that_is_marked_are_no_progress(run):
    """Such as an evaluation at the start of each attempt of a crash loop."""
    run.resume(0, 5)
    for expected in (1, 2):
        run.attempt()
        run.works = True
        run.do(7.0)
        assert run.known.fruitless == expected
    assert run.known.seconds == {"step": 5.0, "recovery": 14.0, "waiting": 0.0}


def test_without_numbers_saves_are_progress(run):
    """Attempts that save get on, those that do not are in vain."""
    run.attempt()
    run.start(None)
    run.saves = 1
    run.do(9.0, "step", steps=9)
    for saves, expected in ((1, 0), (0, 1), (0, 2), (1, 0)):
        run.attempt()
        run.start(None)
        run.saves = saves
        run.do(5.0, "step", steps=5)
        assert run.known.fruitless == expected


def test_without_numbers_and_saves_no_attempt_is_known_to_be_in_vain(run):
    """Whether its steps were new is not known; those without a step are in vain."""
    for seconds in (9.0, 5.0, 4.0):
        run.attempt()
        run.start(None)
        run.do(seconds, "step", steps=int(seconds))
        assert run.known.fruitless == 0
    for expected in (1, 2):
        run.attempt()
        run.start(None)
        run.do(1.0, "step")
        assert run.known.fruitless == expected


def test_the_time_to_resume_spans_attempts_that_do_not(run):
    """It is counted from the interruption to the end of the next step."""
    run.resume(0, 5)
    run.wait(10.0)
    run.attempt()
    run.do(3.0)
    run.wait(10.0)
    run.attempt()
    run.do(2.0)
    run.start(5)
    run.do(1.0, "step", steps=1)
    assert run.known.resumes == 1
    assert run.known.resume_seconds == pytest.approx(26.0)
    assert run.known.interruptions == {"killed": 2}


def test_attempts_that_nobody_saw_are_counted_by_the_scheduler(run):
    """Between its numbers 0 and 3 there were two more; a new record begins at two."""
    run.attempt(attempt=0)
    run.attempt(attempt=3)
    assert run.known.interruptions == {"killed": 1, "unseen": 2}
    fresh = Simulated()
    fresh.attempt(attempt=2)
    assert fresh.known.interruptions == {"unseen": 2}
