"""Findings on what restarts cost a run, and how often it should save."""

import random
from typing import Any

import pytest

from jaxmon.facts.record import encoded
from jaxmon.facts.run import RunRecord, saving
from jaxmon.symptoms.findings import about
from jaxmon.symptoms.symptom import Finding, Urgency
from tests.helpers.findings import findings
from tests.helpers.runs import HOUR, RECORD
from tests.helpers.runs import long_run as run


def found(record: RunRecord) -> list[Finding]:
    """Return the findings on a healthy process that keeps *record*."""
    return findings(None, run=encoded(record.filled()))


@pytest.mark.parametrize(
    "healthy",
    [
        RECORD,
        # A first attempt, however it spends its time.
        run({"recovery": 20 * HOUR}, interruptions={}),
        # Started again after a few minutes, before it had saved anything.
        RECORD.replace(
            seconds={"step": 200.0, "recovery": 150.0, "lost_progress": 100.0},
            interruptions={"stopped": 1},
        ),
        # A step takes long, and so does compiling: that is no restart's fault.
        run({"compile": 100 * HOUR, "data_wait": 50 * HOUR}),
        run({"marked": 60 * HOUR, "unknown": 60 * HOUR}),
        RunRecord(),
        RECORD.replace(writer=""),
        RECORD.replace(schema=2, fruitless=9),
        RECORD.replace(seconds={}),
        RECORD.replace(fruitless=3),
        # Of saves that were not counted, how often they come is not known.
        run({"checkpoint": 10 * HOUR}, saves=0),
    ],
)
def test_a_healthy_run_has_no_finding(healthy: RunRecord) -> None:
    """Nor has a first attempt, a young run, or what is no record."""
    assert found(healthy) == []


def test_lost_steps_are_found_with_the_interval_that_loses_least() -> None:
    """Saves are too rare: the verdict has the loss, the advice has the interval."""
    (one,) = found(run({"lost_progress": 10 * HOUR}, saves=12, lost_steps=9_500))

    assert (one.topic, one.subject) == ("lost_progress", "llama")
    assert one.verdict == (
        "Run llama did 9,500 steps again after it was interrupted 12 times: 10 h, "
        "18 % of 2 d 8 h."
    )
    interrupted, saves = one.evidence
    assert interrupted == (
        "interrupted 12 times (2 crashed, 10 killed), every 4 h 43 min on average; the "
        "next step was done 20 min later"
    )
    assert saves == (
        "one save in 4 h 31 min of the loop, each of which held up the loop for 4 min"
    )
    # √(2 · 240 s · 56.7 h / 12)
    assert one.action.startswith(
        "Save every 47 min 37 s, or 794 steps: by Young's formula, that loses least, "
        "17 % of the time."
    )
    # In proportion to the ten minutes of this process.
    most = 10.0 / 56.7
    assert one.seconds == pytest.approx(600 * (10.8 / 56.7 - 0.16798), rel=0.01)
    assert one.seconds < 600 * most


def test_without_two_failures_no_interval_is_recommended() -> None:
    """The mean of one time between failures says nothing."""
    (one,) = found(run({"lost_progress": 10 * HOUR}, interruptions={"crashed": 1}))

    assert one.action.startswith("Save more often. Save on the notice")
    assert "Young" not in one.action


def test_attempts_that_end_in_order_could_save() -> None:
    """If each had notice, the advice is to use it."""
    (one,) = found(run({"lost_progress": 10 * HOUR}, interruptions={"stopped": 12}))

    assert one.action == (
        "Save on the notice of preemption (SIGTERM) as well: each attempt ended in "
        "order, so it had the time."
    )


def test_saves_that_jaxmon_does_not_see_should_be_marked() -> None:
    """Without them, how often would lose least is unknown."""
    (one,) = found(run({"lost_progress": 10 * HOUR, "checkpoint": 0.0}, saves=0))

    assert '`jaxmon.activity("checkpoint")`' in one.action
    assert len(one.evidence) == 1


def test_saves_that_hold_up_nothing_have_no_interval() -> None:
    """They may be as frequent as one likes."""
    (one,) = found(run({"lost_progress": 10 * HOUR, "checkpoint": 0.0}))

    assert one.action.startswith("Save more often.")
    assert one.evidence[1] == "one save in 33 min 52 s of the loop"


def test_a_run_that_saves_as_often_as_it_should_fails_too_often() -> None:
    """More or fewer saves would not help it."""
    (one,) = found(run({"lost_progress": 10 * HOUR, "checkpoint": 4 * HOUR}))

    assert one.action.startswith("It saves about as often as loses least, every ")
    assert "fewer failures would help" in one.action


@pytest.mark.parametrize(
    ("saves", "seconds", "factor", "action"),
    [
        # Steps are lost, and saves are that much too rare.
        (107, {"checkpoint": 107 * 30.0}, 1.8, "It saves about as often as"),
        (88, {"checkpoint": 88 * 30.0}, 2.2, "Save every "),
        # Saves take a tenth of the time, and come that much too often.
        (70, {"checkpoint": 10 * HOUR}, 1 / 1.8, "Save asynchronously"),
        (105, {"checkpoint": 10 * HOUR}, 1 / 2.2, "Save every "),
    ],
)
def test_within_a_factor_of_two_of_the_best_no_interval_is_recommended(
    saves, seconds, factor, action
):
    """The sum of saves and of what is lost hardly differs there."""
    lost = {} if factor < 1 else {"lost_progress": 10 * HOUR}
    record = run({**lost, **seconds}, saves=saves)
    known = saving(record)
    assert known is not None
    assert known.best is not None
    assert known.every / known.best == pytest.approx(factor, rel=0.02)
    (one,) = found(record)
    assert one.action.startswith(action)


# Two hours of steps that were saved are being done again, and one more.
BEHIND: dict[str, Any] = {"behind": 2_000, "step": 40_100, "lost_steps": 1_000}


def test_an_attempt_that_repeats_what_was_saved_is_found_at_once() -> None:
    """It may be about to remove the good checkpoints; a young run has them, too."""
    few = {**BEHIND, "step": 10, "furthest": 3_000}
    young = RECORD.replace(seconds={"step": 300.0, "recovery": 20.0}, **few)
    [least] = found(run(**{**BEHIND, "behind": 17}))
    assert least.topic == "old_checkpoint"
    for record, won in ((run(**BEHIND), 600.0), (young, 200.0)):
        (one,) = found(record)
        assert one.topic == "old_checkpoint"
        assert one.verdict.startswith(
            "Run llama did not go on from its latest checkpoints: it began 2,000 steps "
            "before the last but one, "
        )
        assert one.seconds == pytest.approx(won)
        assert "restoring" in one.action


@pytest.mark.parametrize(
    "harmless",
    [
        # It has caught up.
        {**BEHIND, "step": 43_000},
        {**BEHIND, "behind": 0},
        # Somewhat less than a minute.
        {**BEHIND, "behind": 16},
    ],
)
def test_what_was_repeated_is_history(harmless: dict[str, Any]) -> None:
    """Nor is an attempt accused that hardly repeats anything."""
    assert found(run(**harmless)) == []


def test_more_saves_do_not_help_who_does_not_restore_them() -> None:
    """Then the advice is to restore the latest."""
    lost = {"lost_progress": 10 * HOUR}
    (one,) = found(run(lost, lost_steps=9_500, behind_in_all=6_000))
    assert one.action.startswith("Most of these steps had been saved: ")
    (one,) = found(run(lost, lost_steps=9_500, behind_in_all=4_000))
    assert "had been saved" not in one.action


def test_slow_restarts_are_found() -> None:
    """With the time of each, and what would shorten it."""
    (one,) = found(run({"recovery": 8 * HOUR}))

    assert (one.topic, one.subject) == ("recovery", "llama")
    assert one.verdict == (
        "Run llama spent 8 h, 15 % of 2 d 6 h on starting again and restoring: 40 min "
        "after each interruption."
    )
    assert one.seconds == pytest.approx(600 * 8 / 54.5)
    assert "restart in place" in one.action


def test_causes_that_are_much_together_are_each_found() -> None:
    """Neither is a tenth of the time, both are."""
    part = {"recovery": 4.5 * HOUR, "lost_progress": 4 * HOUR}

    assert [one.topic for one in found(run(part))] == ["recovery", "lost_progress"]
    assert found(run({**part, "recovery": 0.4 * HOUR})) == []


def test_saves_that_take_too_long_are_found() -> None:
    """Those that come too often should be rarer; all could be asynchronous."""
    often = run({"checkpoint": 10 * HOUR}, saves=2_000)
    (one,) = found(often)
    known = saving(often)
    assert known is not None
    assert known.best is not None
    assert known.every < known.best / 2

    assert (one.topic, one.subject) == ("checkpoint_time", "llama")
    assert one.verdict == ("Saving held up run llama for 10 h, 17 % of 2 d 9 h.")
    assert one.evidence[0].endswith("each of which held up the loop for 18.0 s")
    assert one.action.startswith("Save every 13 min 6 s, or 218 steps: ")
    assert "asynchronously" in one.action
    (rare,) = found(run({"checkpoint": 10 * HOUR}, saves=20))
    assert rare.action.startswith("Save asynchronously")


def test_saves_are_judged_in_a_first_attempt_too() -> None:
    """They hold it up as much; how often to save is not known before it failed."""
    first = run({"checkpoint": 10 * HOUR, "lost_progress": 0}, interruptions={})
    (one,) = found(first)

    assert one.topic == "checkpoint_time"
    assert len(one.evidence) == 1
    assert "asynchronously" in one.action
    assert "less often" in one.action
    assert "Young" not in one.action


def test_waiting_for_machines_is_a_hint() -> None:
    """The program cannot win it back; it hides no other loss, and none is blamed."""
    (one,) = found(run({"waiting": 24 * HOUR}))

    assert (one.topic, about(one).urgency) == ("between_attempts", Urgency.HINT)
    assert one.verdict == (
        "No attempt of run llama ran for 1 d, 33 % of 3 d: 2 h before each restart."
    )
    assert one.seconds == 0
    topics = [
        one.topic for one in found(run({"waiting": 500 * HOUR, "recovery": 8 * HOUR}))
    ]
    assert topics == ["recovery", "between_attempts"]


def test_a_crash_loop_is_a_failure() -> None:
    """As soon as its alert would fire, before any other finding."""
    first, *_ = found(run({"recovery": 20 * HOUR}, fruitless=4))

    assert (first.topic, about(first).urgency) == ("no_progress", Urgency.FAILURE)
    assert first.verdict == "Run llama is in attempt 4 in a row without a new step."
    assert "jaxmon job post-mortem" in first.action


def test_attempts_in_vain_that_end_in_order_may_belong_to_a_finished_run() -> None:
    """Nothing failed in them."""
    first, *_ = found(run(interruptions={"stopped": 12}, fruitless=4))

    assert first.topic == "no_progress"
    assert first.action.startswith(
        "Each attempt ended in order. If the run is finished"
    )


@pytest.mark.parametrize("text", ["a" * 10_000, "\x1b[31m", "ü", ""])
def test_a_record_is_not_trusted(text: str) -> None:
    """Impossible numbers and hostile text end in no exception."""
    for number in (-1e18, 0.0, 1e300):
        hostile = {
            **encoded(
                run({"lost_progress": number, "recovery": number}, run=text).filled()
            ),
            "saves": number,
            "lost_steps": number,
            "interruptions": {"killed": number, text: number},
        }
        for one in findings(None, run=hostile):
            assert "\x1b" not in one.verdict


def test_steps_that_took_no_time_have_no_interval() -> None:
    """Nor have more steps than can be counted."""
    known = saving(run({"step": 5e-324, "data_wait": 0.0}))
    assert known is not None
    assert (known.best is not None, known.steps) == (True, 0)
    known = saving(run({"step": 1e-308, "data_wait": 0.0}, furthest=10**12))
    assert known is not None
    assert (known.best is not None, known.steps) == (True, 0)


def test_without_a_step_it_is_not_known_how_many_the_interval_has() -> None:
    """Such as in a program that marks none."""
    (one,) = found(run({"checkpoint": 10 * HOUR}, saves=2_000, furthest=0))
    assert one.action.startswith("Save every 13 min 6 s: by Young's formula")


@pytest.mark.parametrize("save", [10.0, 120.0])
def test_the_recommended_interval_loses_least(save: float) -> None:
    """Of simulated failures at a constant rate, any other loses more."""
    between = 4 * HOUR
    chosen = random.Random(1)  # noqa: S311 - repeatable, hides nothing
    failures = [chosen.expovariate(1 / between) for _ in range(20_000)]
    whole = sum(failures)

    def loss(every: float) -> float:
        cycle = every + save
        saves = [time // cycle for time in failures]
        lost = sum(time - n * cycle for time, n in zip(failures, saves, strict=True))
        return (lost + save * sum(saves)) / whole

    # A record of as many hours and failures, with some number of saves.
    spent = {"step": 47.0 * HOUR, "checkpoint": HOUR}
    known = saving(
        RECORD.replace(seconds=spent, saves=round(HOUR / save), furthest=47_000)
    )

    assert known is not None
    assert known.best is not None
    assert known.best == pytest.approx(known.steps * 3.6, abs=3.6)
    assert loss(known.best) == pytest.approx(known.least, rel=0.1)
    for factor in (0.4, 0.6, 1.6, 2.5):
        assert loss(known.best) < loss(known.best * factor)
