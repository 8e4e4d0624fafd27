"""Processes of a job that have ended, or are stopped."""

from typing import Any

import pytest

from jaxmon.facts.host import host
from jaxmon.job.model import JobState, SuspectKind
from jaxmon.job.text import lines, worst
from jaxmon.job.verdict import judge
from tests.job.judged import judged, only, text
from tests.job.ranks import report, waiting


def test_how_a_process_ended_comes_first() -> None:
    """One that was killed is likelier to be the cause than those that then failed."""
    killed = report(1, ended="killed", ended_seconds=8.0)
    failed = report(0, ended="crashed", ended_seconds=8.0)
    job = judged(failed, killed, *waiting(2, first=2, age=9.0))
    assert [one.kind for one in job.suspects] == [
        SuspectKind.KILLED,
        SuspectKind.CRASHED,
    ]
    assert job.state is JobState.HUNG
    assert "rank 1 (host-0, pid 1001) ended without a record: killed, or" in text(job)
    killed["words"] = {"signal": 9}
    job = judged(failed, killed, *waiting(2, first=2, age=9.0))
    assert "rank 1 (host-0, pid 1001) was ended by SIGKILL" in text(job)


@pytest.mark.parametrize(
    "how",
    [
        {"ended": "stopped"},
        {"ended": "stopped", "words": {"kind": "stop", "signal": 15}},
        {"ended": "killed", "words": {"signal": 15}},
    ],
)
def test_a_stopped_rank_is_no_crash(how: dict[str, Any]) -> None:
    """Its job waits for it, and both commands say who stopped it, not that it died."""
    stopped = report(1, ended_seconds=8.0, **how)
    job = judged(stopped, *waiting(3, first=2, age=9.0))
    assert job.suspects[0].kind is SuspectKind.TERMINATED
    assert "rank 1 (host-0, pid 1001) was stopped by SIGTERM" in text(job)


def test_errors_about_other_processes_come_last() -> None:
    """The rank that never came to their collective is there, and is the cause."""
    words = {"kind": "exception", "message": "UNKNOWN: Gloo all-reduce failed: x"}
    failed = [
        report(n, ended="crashed", ended_seconds=8.0, words=words) for n in range(3)
    ]
    job = judged(*failed, report(3, state="blocked", place="read.py:9"))
    assert [one.kind for one in job.suspects] == [SuspectKind.BLOCKED, SuspectKind.LOST]
    assert job.state is JobState.HUNG
    said = text(job)
    assert "ranks 0-2 (on host-0) ended by exceptions about other" in said
    assert said.index("rank 3") < said.index("ranks 0-2")


@pytest.mark.parametrize(
    "gone",
    [
        {"ended": "killed", "ended_seconds": 40.0},
        {"ended": "finished", "ended_seconds": 40.0},
        {"stopped": True, "trouble": "does not respond", "since_seconds": 40.0},
    ],
    ids=["killed", "finished", "stopped"],
)
def test_while_a_rank_is_gone_the_one_that_logs_is_not_suspected(gone):
    """Rank 0 reads the loss, which waits for the rank that is gone as the rest does."""
    logs = report(0, calls=811, state="fetch", place="train.py:60")
    job = judged(logs, *waiting(2, first=1), report(3, calls=790, **gone))
    assert only(job).numbers == (3,)
    assert job.waiting.numbers == (0, 1, 2)


def test_a_process_that_finished_early_is_named() -> None:
    """A rank with fewer batches leaves the others in their next call."""
    job = judged(*waiting(3), report(3, ended="finished", ended_seconds=40.0))
    assert (only(job).kind, job.state) == (SuspectKind.FINISHED, JobState.HUNG)


def test_a_rank_that_waits_for_one_that_finished_makes_no_progress() -> None:
    """From the call on that it lacks; one that saves, or computes as usual, does."""
    over = report(3, calls=84, ended="finished", ended_seconds=12.0)
    waits = waiting(3, age=12.0)
    assert judged(*waits, over).state is JobState.HUNG
    assert judged(*waiting(3, age=4.0), over).state is JobState.PROGRESSING
    slow = [of | {"pace": {"age_seconds": 12.0, "usual_seconds": 10.0}} for of in waits]
    assert judged(*slow, over).state is JobState.PROGRESSING
    saves = [report(n, age=12.0, state="python", activity="save") for n in range(3)]
    assert judged(*saves, over).state is JobState.PROGRESSING


def test_ranks_of_an_earlier_run_are_none_of_this_one() -> None:
    """It may have had the same address; each of a run was there with the others."""
    ended = {"ended": "killed", "observed_seconds": 100.0, "since_seconds": 250.0}
    past: Any = {"calls": 84, "ended_seconds": 240.0, **ended}

    def pids(seconds: float, *, age: float = 0.1, **change: Any) -> list[int | None]:
        """Return which are judged, of one that began *seconds* ago and the other."""
        first: Any = {"count": 2, "age": age, "observed_seconds": seconds}
        of_first = {key: change.pop(key) for key in change.copy() if key != "calls"}
        other = report(1, count=2, **{**past, **change})
        job = judged(report(0, **first, **of_first), other)
        return [rank.pid for rank in job.ranks]

    assert pids(200.0) == [1000]
    # It was there when that one ended, or that one had waited for it.
    assert pids(300.0) == pids(200.0, calls=0) == [1000, 1001]
    # Of a run that has ended as well.
    assert pids(200.0, ended="killed", ended_seconds=9.0, since_seconds=10.0) == [1000]


PEER = "UNKNOWN: Gloo all-reduce failed: Connection closed by peer"


@pytest.mark.parametrize("ended", ["finished", "crashed"])
def test_an_exit_after_an_error_about_others_is_a_consequence(ended: str) -> None:
    """As Hydra ends programs, and those that log it first."""
    words = {
        "kind": "exit",
        "code": 1,
        "age_seconds": 8.0,
        "causes": [{"type": "ValueError", "message": PEER}],
    }
    exited = report(3, ended=ended, ended_seconds=8.0, words=words)
    job = judged(*waiting(3, age=9.0), exited)
    assert only(job).kind is SuspectKind.LOST


def test_a_process_that_exited_with_an_error_has_not_finished() -> None:
    """An exit with a code is a failure, whose cause the post-mortem shows."""
    words = {"kind": "exit", "code": 1, "age_seconds": 8.0}
    exited = report(3, ended="finished", ended_seconds=8.0, words=words)
    job = judged(*waiting(3, age=9.0), exited)
    assert (only(job).kind, job.state) == (SuspectKind.EXITED, JobState.HUNG)
    said = text(job)
    assert "rank 3 (host-0, pid 1003) exited with an error code, noticed 8" in said
    assert "job post-mortem` shows the code" in said


def test_a_process_that_was_interrupted_has_not_finished() -> None:
    """Ctrl-C is no crash of a program, but leaves the rest of its job waiting."""
    words = {"kind": "exception", "type": "KeyboardInterrupt", "age_seconds": 8.0}
    gone = report(3, ended="finished", ended_seconds=8.0, words=words)
    job = judged(*waiting(3, age=9.0), gone)
    assert (only(job).kind, job.state) == (SuspectKind.CRASHED, JobState.HUNG)


def test_a_job_that_is_over_is_over() -> None:
    """All have ended: nothing hangs."""
    some = [report(n, ended="finished", ended_seconds=5.0) for n in range(4)]
    verdict = judge([host("a", {"ranks": some})])
    assert "post-mortem" not in " ".join(lines(verdict, 100))
    failed = judged(*some[:3], report(3, ended="killed", ended_seconds=9.0))
    assert failed.state is JobState.ENDED
    assert "`jaxmon job post-mortem` shows which of them failed first" in text(failed)
    assert worst(verdict) is JobState.ENDED


def test_a_stopped_process_is_named() -> None:
    """It is known from the kernel, since it does not respond."""
    some = report(2, stopped=True, trouble="does not respond", since_seconds=20.0)
    job = judged(*waiting(2), some, *waiting(1, first=3))
    assert only(job).kind is SuspectKind.STOPPED
    assert "for 20.0 s" in text(job)
