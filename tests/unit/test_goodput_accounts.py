"""How the time of attempts is added to the record of their run."""

import random

import pytest

from tests.helpers.runs import Simulated


@pytest.fixture
def run():
    """Return a run of which there was no attempt."""
    return Simulated()


def test_steps_are_done_again_up_to_the_furthest(run):
    """A restart from step 10 of 15: five steps are lost, and the next one is new."""
    run.attempt()
    run.do(3.0)
    run.start(0)
    run.do(15.0, "step", steps=15)
    run.wait(20.0)
    run.attempt()
    run.do(2.0, "restore")
    run.start(10)
    run.do(6.0, "step", steps=6)

    assert run.known.seconds == {
        "startup": 3.0,
        "step": 16.0,
        "waiting": 20.0,
        "recovery": 2.0,
        "lost_progress": 5.0,
    }
    assert (run.known.lost_steps, run.known.steps) == (5, 16)
    assert run.known.goodput == pytest.approx(16 / 46)


def test_an_unfinished_step_is_lost_as_well(run):
    """Its time counts as progress at first, and is given back as it is done again."""
    run.resume(0, 4)
    run.do(0.6, "step")
    assert run.known.seconds["step"] == pytest.approx(4.6)
    run.resume(4, 1)

    assert run.known.lost_steps == 0
    assert run.known.seconds["step"] == pytest.approx(5.0)
    assert run.known.seconds["lost_progress"] == pytest.approx(0.6)


def test_a_step_that_is_repeated_and_interrupted_owes_nothing_more(run):
    """Its time was lost at once; only what counts as progress is to be given back."""
    run.resume(0, 4)
    run.do(0.6, "step")
    run.attempt()
    run.start(2)
    run.do(0.9, "step")  # of the third step, which is done again
    assert run.known.seconds["lost_progress"] == pytest.approx(0.9)
    run.attempt()
    run.start(4)
    run.do(0.2, "step")  # of the fifth, which was not finished
    assert run.known.seconds["lost_progress"] == pytest.approx(1.1)
    run.resume(4, 1)

    # Whatever was spent on the five steps before their last time is lost.
    assert run.known.seconds["step"] == pytest.approx(5.0)
    assert run.known.seconds["lost_progress"] == pytest.approx(0.6 + 0.9 + 0.2)


def test_steps_without_numbers_are_no_progress_until_they_must_be(run):
    """After a restart, as many as there were may be the same again."""
    run.resume(None, 5)
    run.resume(None, 8)

    assert run.known.seconds["unknown"] == pytest.approx(5.0)
    assert run.known.seconds["step"] == pytest.approx(8.0)
    assert (run.known.lost_steps, run.known.furthest) == (0, 8)


def test_a_rollback_within_a_process_is_lost_progress(run):
    """A loop that begins again at an earlier step needs no restart for that."""
    run.resume(0, 6)
    run.start(2)
    run.do(4.0, "step", steps=4)
    assert run.known.seconds["lost_progress"] == pytest.approx(4.0)
    assert run.known.lost_steps == 4


def test_steps_that_are_numbered_in_each_epoch_count_on(run):
    """A loop that begins at 0 again has lost nothing, unless it restored something."""
    run.attempt()
    for _ in range(3):
        run.start(0)
        run.do(5.0, "step", steps=5)
    assert (run.known.lost_steps, run.known.steps) == (0, 15)
    assert run.known.seconds == {"step": 15.0}
    run.do(1.0, "restore")
    run.start(0)
    run.do(5.0, "step", steps=5)
    assert run.known.lost_steps == 15
    assert run.known.seconds["lost_progress"] == pytest.approx(5.0)


def test_an_agent_that_is_started_again_counts_on_in_the_next_epoch(run):
    """The process is the same, and has restored nothing."""
    run.resume(0, 5)
    run.again()
    run.start(0)
    run.do(5.0, "step", steps=5)
    assert (run.known.lost_steps, run.known.steps) == (0, 10)
    assert run.known.seconds["step"] == pytest.approx(10.0)
    assert run.known.interrupted == 0


def test_an_agent_that_is_started_again_notices_what_is_repeated():
    """A number other than 0 is no epoch, and nor is 0 after a restore."""
    for start, restored in ((2, 0.0), (0, 1.0)):
        run = Simulated()
        run.resume(0, 5)
        run.again()
        if restored:
            run.do(restored, "restore")
        run.start(start)
        run.do(2.0, "step", steps=2)
        assert run.known.lost_steps == 5 - start
        assert run.known.seconds["lost_progress"] == pytest.approx(2.0)


def test_after_a_restart_numbers_of_an_epoch_say_nothing(run):
    """In which epoch it continues is unknown, as without numbers."""
    run.attempt()
    for _ in range(4):
        run.start(0)
        run.do(5.0, "step", steps=5)
        run.saves += 1
        run.do(0.0)
    run.resume(2, 3)
    run.start(0)
    run.do(5.0, "step", steps=5)
    assert (run.known.lost_steps, run.known.behind) == (0, 0)
    spent = {name: one for name, one in run.known.seconds.items() if one}
    assert spent == {"step": 20.0, "unknown": 8.0}


def test_steps_that_a_restart_repeats_though_they_were_saved_are_known(run):
    """It began before the last save but one; from the last ones it may do so."""
    run.attempt()
    run.start(0)
    for _ in range(4):
        run.do(10.0, "step", steps=10)
        run.saves += 1
        run.do(0.0)
    run.do(5.0, "step", steps=5)
    for start in (40, 30):
        run.attempt()
        run.do(1.0, "restore")
        run.start(start)
        run.do(12.0, "step", steps=12)
        assert run.known.behind == 0
    run.attempt()
    run.saves = 1  # before the loop: its number is not known
    run.do(1.0)
    run.start(0)
    run.do(5.0, "step", steps=5)
    assert (run.known.behind, run.known.behind_in_all) == (30, 30)
    for expected in (0, 0):
        run.resume(0, 5)
        assert run.known.behind == expected
    assert run.known.behind_in_all == 30


def test_what_a_process_repeats_by_itself_does_not_begin_behind(run):
    """It goes back on purpose, as after a loss that is not finite."""
    run.attempt()
    run.start(0)
    for _ in range(3):
        run.do(10.0, "step", steps=10)
        run.saves += 1
        run.do(0.0)
    run.start(5)
    run.do(1.0, "step", steps=1)
    assert (run.known.behind, run.known.behind_in_all) == (0, 0)
    assert (run.known.lost_steps, run.known.saves) == (25, 3)


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_what_is_saved_in_parts_is_one_checkpoint(run, looks):
    """Parameters and optimizer: the latest of both may not be complete yet."""
    run.attempt()
    run.start(0)
    for _ in range(3):
        for _ in range(10):
            run.do(10.0, "step", steps=10)
        # Both before the next look, or that in between.
        run.steps += 5
        for number in range(1, 3):
            run.saves += 1
            if number < looks:
                run.do(1.0, "checkpoint")
        run.do(5.0, "step", steps=5)
    assert run.known.steps == 330
    for start, least, most in ((215, 0, 0), (105, 100, 110)):
        run.resume(start, 1)
        assert least <= run.known.behind <= most


def test_saves_contain_the_steps_before_them(run):
    """Of two since the last look, both contain what was done then, and may be one."""
    run.resume(0, 10)
    run.saves = 1
    run.do(10.0, "step", steps=10)
    assert (run.known.saved_before, run.known.saved) == (0, 10)
    run.saves = 3
    run.do(10.0, "step", steps=10)
    assert (run.known.saved_before, run.known.saved) == (0, 20)
    run.do(10.0, "step", steps=10)
    run.saves = 4
    run.do(10.0, "step", steps=10)
    assert (run.known.saved_before, run.known.saved) == (20, 40)
    # It went back after it had saved, or before.
    run.start(22)
    run.saves = 5
    run.do(0.0)
    assert (run.known.saved_before, run.known.saved) == (20, 22)
    assert run.known.saves == 5


def test_saving_the_same_steps_again_is_no_progress(run):
    """Attempts that save, but never get further than the first, are in vain."""
    run.resume(0, 9)
    for expected in (1, 2):
        run.resume(0, 5)
        run.saves = 1
        run.do(4.0, "step", steps=4)
        assert run.known.fruitless == expected


def test_compiles_that_seemed_to_be_steps_are_counted_later(run):
    """What was read too early is taken from the next steps, so the sum is right."""
    run.attempt()
    run.start(0)
    run.do(10.0, "step")
    run.late = 7.0
    run.do(3.0, "step", steps=1)
    assert run.known.seconds == {"step": 10.0, "compile": 3.0}
    run.do(9.0, "step", steps=9)
    assert run.known.seconds == {"step": 15.0, "compile": 7.0}
    run.do(1.0, "step", steps=1)
    assert run.known.seconds == {"step": 16.0, "compile": 7.0}


def test_a_clock_that_is_set_does_no_harm(run):
    """On one host it is not used; between hosts, no time is negative."""
    run.attempt()
    run.do(5.0)
    run.wall -= 1e6
    run.do(5.0)
    run.wait(7.0)
    run.attempt()
    assert run.known.seconds["waiting"] == pytest.approx(7.0)
    run.wall -= 1e6
    run.attempt(boot="another")
    assert run.known.seconds["waiting"] == pytest.approx(7.0)


@pytest.mark.parametrize("seed", range(20))
def test_activities_always_add_up(run, seed):
    """Whatever comes, each second is counted once, and no counter decreases."""
    chosen = random.Random(seed)  # noqa: S311 - repeatable, hides nothing
    began, before = run.boottime, dict[str, float]()
    for _ in range(6):
        run.attempt()
        run.do(chosen.random())
        run.start(chosen.choice([None, 0, run.known.furthest, run.known.step]))
        for _ in range(20):
            activity = chosen.choice(
                ["step", "data_wait", "compile", "eval", "", "other"]
            )
            run.do(chosen.random(), activity, steps=chosen.choice([0, 0, 1, 7]))
            if chosen.random() < 0.05:
                run.start(chosen.randrange(30))
            assert run.known.wall == pytest.approx(run.boottime - began)
            for name, seconds in before.items():
                assert run.known.seconds[name] >= seconds - 1e-9
            before = dict(run.known.seconds)
        run.wait(chosen.random())
