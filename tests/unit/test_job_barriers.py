"""Who does not come to a barrier of JAX, or to the start or the end of a job."""

from typing import Any

from jaxmon.facts.host import host
from jaxmon.job.model import JobState, SuspectKind
from jaxmon.job.text import lines
from jaxmon.job.verdict import judge
from tests.job.judged import judged, only, text
from tests.job.ranks import STEP, report, waiting


def in_barrier(index: int, **options: Any) -> dict[str, Any]:
    """Return a rank that waits in `multihost_utils.sync_global_devices`."""
    found = report(index, state="fetch", place="train.py:70", **options)
    found["now"]["barrier"] = "sync_global_devices"
    return found


def test_who_does_not_come_to_a_barrier_is_named() -> None:
    """No call of a barrier is counted, so having made the same calls clears no rank."""
    rest = [in_barrier(n) for n in range(3)]
    job = judged(*rest, report(3, state="blocked", place="save.py:9"))
    found = only(job)
    assert (found.kind, found.numbers, found.place) == (
        SuspectKind.BLOCKED,
        (3,),
        "save.py:9",
    )
    said = text(job)
    assert "ranks 0-2 wait in sync_global_devices, after call 812 of train_step" in said
    assert "not dispatched" not in said
    assert judged(*rest, report(3, calls=813, state="python")).suspects == ()


def in_distributed(index: int, function: str, **options: Any) -> dict[str, Any]:
    """Return a rank that waits in a function of `jax.distributed`."""
    found = report(index, state="fetch", place="train.py:9", **options)
    found["now"]["barrier"] = f"jax.distributed.{function}"
    return found


def test_who_does_not_come_to_the_end_is_named() -> None:
    """It has finished its calls, too, and the others wait in the barrier of JAX."""
    rest = [in_distributed(n, "shutdown") for n in range(3)]
    job = judged(*rest, report(3, state="blocked", place="upload.py:9"))
    assert (only(job).kind, only(job).numbers) == (SuspectKind.BLOCKED, (3,))
    assert "ranks 0-2 wait in jax.distributed.shutdown, after call 812" in text(job)


def test_who_does_not_join_is_waited_for() -> None:
    """For five minutes, as JAX waits; then it is a hang."""
    waits = JobState.WAITING
    for age, state in ((3.0, waits), (60.0, waits), (400.0, JobState.HUNG)):
        some = [
            in_distributed(n, "initialize", calls=None, age=None, since_seconds=2.0)
            for n in range(3)
        ]
        for one in some:
            one["now"]["seconds"] = age - 2.0
        job = judged(*some)
        assert (job.state, only(job).kind) == (state, SuspectKind.MISSING)
        assert job.seconds == age
        said = text(job)
        assert "rank 3 is reported by no sidecar" in said
        assert "has not joined the job yet" in said
        assert "ranks 0-2 wait in jax.distributed.initialize (train.py:9)" in said


def test_processes_that_have_not_joined_are_mentioned() -> None:
    """If a rank is missing, or no job is found: they may be it, or its other ranks."""
    alone = {"index": None, "count": None}
    for some, said in (
        (
            [*waiting(3), alone],
            "1 observed process there belongs to no job, or has not",
        ),
        ([alone, alone], "2 observed processes there belong to no job, or have not"),
    ):
        verdict = judge([host("a", {"ranks": some})])
        assert said in " ".join(lines(verdict, 100))
    verdict = judge([host("a", {"ranks": [*waiting(4), alone]})])
    assert "observed" not in " ".join(lines(verdict, 100))
    failed = {"ended": "crashed", "words": {"kind": "exception", "age_seconds": 9.0}}
    verdict = judge([host("a", {"ranks": [*waiting(3), alone | failed]})])
    said = " ".join(lines(verdict, 100))
    assert "1 process of unknown rank failed there: `jaxmon job post-mortem`" in said
    assert "observed" not in said


def test_a_job_that_has_not_called_for_long_may_hang_soon() -> None:
    """When it would be called hung is said from a third of that time on."""
    for age, said in ((9.0, "last call 9.0 s ago"), (20.0, "ago, hung from 30.0 s")):
        found = text(judged(*waiting(4, age=age)))
        assert found.startswith("PROGRESSING")
        assert found.endswith(said)


def test_a_pause_that_is_unusually_long_is_a_wait() -> None:
    """Three times the usual one, and 5 s at least; of a slow job, as long as before."""
    for age, usual, state in (
        (4.9, 0.05, JobState.PROGRESSING),
        (5.0, 0.05, JobState.WAITING),
        (20.0, 8.0, JobState.PROGRESSING),
        (25.0, 8.0, JobState.WAITING),
        (29.0, 60.0, JobState.PROGRESSING),
    ):
        job = judged(*waiting(3, age=age, usual=usual), in_barrier(3, age=age))
        assert (job.state, bool(job.suspects)) == (state, state is JobState.WAITING)


def test_who_does_not_initialise_its_devices_is_named() -> None:
    """JAX does so when the first function is compiled, and waits for all processes."""
    first = report(0, calls=None, state="compile", place="train.py:9", age=100.0)
    first["now"]["barrier"] = "the initialisation of devices"
    busy = [
        report(n, calls=None, state="blocked", place="read.py:9", age=None)
        for n in range(1, 4)
    ]
    job = judged(first, *busy)
    assert (job.state, only(job).kind) == (JobState.WAITING, SuspectKind.BLOCKED)
    assert only(job).numbers == (1, 2, 3)
    assert "rank 0 waits in the initialisation of devices (train.py:9)" in text(job)


def test_who_comes_to_a_barrier_alone_is_named() -> None:
    """So is a rank in a barrier in which the others are not."""
    job = judged(*waiting(3, calls=813), in_barrier(3))
    assert only(job).kind is SuspectKind.ELSEWHERE
    assert (
        "waits on another line, in sync_global_devices, train.py:70, for 1 min; has "
        "not dispatched call 813 of train_step"
    ) in text(job)
    assert "such as an exception that it handles" in text(job)
    assert "give all ranks the same number of batches" in text(job)
    alone = report(3, state="device", function=STEP, place="eval.py:7")
    job = judged(*waiting(3), alone)
    assert (only(job).kind, only(job).function) == (SuspectKind.ELSEWHERE, STEP)
    assert "waits on another line, in train_step, eval.py:7" in text(job)
    reads = report(0, calls=812, state="fetch", place="train.py:60")
    some = waiting(2, first=1, calls=830)
    job = judged(reads, *some, in_barrier(3, calls=811))
    assert only(job).numbers == (3,)
    assert job.waiting.numbers == (0, 1, 2)
    together = judged(*[in_barrier(n) for n in range(4)])
    assert together.suspects == ()
    assert "all ranks have dispatched the same: 4 wait in sync" in text(together)
