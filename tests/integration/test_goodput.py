"""
The record of a run that is killed and restarted, against a ledger kept outside of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import series
from tests import ml_goodput
from tests.goodput_runs import RUN, Fault, Supervised


pytestmark = pytest.mark.ground_truth


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Supervised:
    """Return a run whose first attempt is killed, and whose second raises an error."""
    found = Supervised(tmp_path_factory.mktemp("run"), 30)
    found.attempt(Fault("killed", 13))
    found.attempt(Fault("crashed", 20), pause=0.3)
    found.attempt(None, pause=0.2)
    return found


def test_each_second_is_where_the_supervisor_has_it(run: Supervised) -> None:
    """
    Up to its last write before each end, the record agrees with the ledger, except for
    steps that are split; with all of it, except for what came after these writes.
    """
    record = run.record()
    for ledger in (run.ledger(as_recorded=True), run.ledger()):
        for activity, expected in ledger.seconds.items():
            found = record.seconds.get(activity, 0.0)
            assert abs(found - expected) <= ledger.allowed(activity), activity
        assert ledger.seconds["lost_progress"] > 0.1
    assert record.seconds["lost_progress"] > 0.1


def test_activities_add_up_to_the_wall_time_since_the_first_attempt(
    run: Supervised,
) -> None:
    """From the start of the first process to the last write, whatever happened."""
    record = run.record()
    whole = record.boottime - run.attempts[0].began
    # The kernel counts the start of a process in hundredths of a second.
    assert record.wall == pytest.approx(whole, abs=0.1)


def test_interruptions_and_lost_steps_are_counted(run: Supervised) -> None:
    """Those since the last checkpoint were lost, and the run resumed each time."""
    record, ledger = run.record(), run.ledger(as_recorded=True)
    assert record.interruptions == {"killed": 1, "crashed": 1}
    assert (record.starts, record.steps, record.fruitless) == (3, 30, 0)
    assert record.lost_steps == ledger.lost_steps
    # Without those that were done after the last write before the kill.
    assert ledger.lost_steps <= run.ledger().lost_steps
    assert record.resumes == 2
    assert abs(record.resume_seconds - ledger.resume_seconds) <= ledger.tolerance


def test_the_last_process_exports_the_whole_run(run: Supervised) -> None:
    """Its counters continue those of the processes before."""
    page, record = run.page(), run.record()
    seconds = {
        activity: page[series(catalog.RUN_SECONDS, RUN, activity)]
        for activity in catalog.RUN_ACTIVITIES
    }
    assert sum(seconds.values()) <= record.wall
    for activity, found in seconds.items():
        assert found <= record.seconds.get(activity, 0.0)
    for metric, value in (
        (catalog.RUN_STEPS, record.steps),
        (catalog.RUN_LOST_STEPS, record.lost_steps),
        (catalog.RUN_RESUMES, record.resumes),
        (catalog.RUN_RESUME_SECONDS, record.resume_seconds),
        (catalog.RUN_FRUITLESS_ATTEMPTS, record.fruitless),
    ):
        assert page[series(metric, RUN)] == value
    for ending in catalog.RUN_ENDINGS:
        found = page[series(catalog.RUN_INTERRUPTIONS, RUN, ending)]
        assert found == record.interruptions.get(ending, 0)


def test_ml_goodput_measurement_agrees(
    run: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Of the same run, Google's library has the same figures: it counts lost steps where
    they were done first, and the rest of the last step as recovery.
    """
    theirs = ml_goodput.figures(run, tmp_path, monkeypatch)
    record, ledger = run.record(), run.ledger()
    ours = {
        "total": record.wall,
        "productive": sum(
            record.seconds.get(one, 0.0) for one in ("step", "data_wait", "checkpoint")
        ),
        "startup": record.seconds["compile"],
        "lost": record.seconds["lost_progress"] + record.seconds["waiting"],
        "other": record.seconds["startup"] + record.seconds["recovery"],
    }
    allowed = ledger.tolerance + ledger.traced + ledger.repeated
    for name, seconds in ours.items():
        assert abs(theirs[name] - seconds) <= allowed, (name, theirs, ours)
    assert theirs["interruptions"] == record.interrupted
