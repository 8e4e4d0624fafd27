"""Ranks that run other programs than most of their job."""

from typing import Any

from jaxmon.facts.host import host
from jaxmon.job.model import Job, SuspectKind
from jaxmon.job.verdict import judge
from tests.job.judged import judged, only, text
from tests.job.ranks import STEP, report, waiting


def test_another_branch_is_another_program() -> None:
    """One more call here and one less there is not ahead or behind."""
    other = report(3, calls=811, state="device", function="__main__.evaluate")
    other["functions"]["__main__.evaluate"] = {"calls": 1, "devices": 8}
    job = judged(*waiting(3), other)
    found = only(job)
    assert (found.kind, found.numbers) == (SuspectKind.PROGRAM, (3,))
    assert found.function == "__main__.evaluate"
    assert job.waiting.numbers == (0, 1, 2)


def test_two_ranks_in_two_programs_are_both_named() -> None:
    """Of two halves it is unknown which one is right."""
    other = report(1, calls=811, count=2, state="device", function="__main__.evaluate")
    other["functions"]["__main__.evaluate"] = {"calls": 1, "devices": 8}
    job = judged(*waiting(1, calls=812, count=2), other)
    assert {one.kind for one in job.suspects} == {SuspectKind.PROGRAM}
    assert sorted(n for one in job.suspects for n in one.numbers) == [0, 1]


def test_another_program_of_the_same_function_is_named() -> None:
    """The fingerprint differs if an argument had another shape."""
    other = report(2, calls=812, state="device", function=STEP, fingerprint="bad")
    job = judged(*waiting(2), other, *waiting(1, first=3))
    assert (only(job).kind, only(job).numbers) == (SuspectKind.PROGRAM, (2,))


def test_hosts_that_compile_differently_accuse_none() -> None:
    """If each has a fingerprint of its own, it says nothing."""
    some = [
        report(n, state="device", function=STEP, fingerprint=f"{n}") for n in range(4)
    ]
    assert judged(*some).suspects == ()


def test_functions_of_a_part_of_the_devices_are_not_compared() -> None:
    """Groups of processes may call others among themselves, as in a pipeline."""
    some = waiting(4)
    for n, one in enumerate(some):
        one["functions"][f"stage_{n % 2}"] = {"calls": 10, "devices": 4}
    assert judged(*some).suspects == ()


def staged(**late: Any) -> Job:
    """Return the verdict on a pipeline, whose second stage does *late*."""
    some = []
    for n in range(4):
        function = f"__main__.stage_{n // 2}"
        doing = {"state": "device", "function": function, **(late if n > 1 else {})}
        one = report(n, calls=None, place=f"a.py:{n // 2}", **doing)
        one["functions"] = {function: {"calls": 80, "devices": 2}}
        some.append(one | {"setup": "of each"})
    document = {"ranks": some, "setups": {"of each": {"devices": "1"}}}
    [job] = judge([host("a", document)]).jobs
    return job


def test_stages_of_a_pipeline_run_no_other_program_than_they_should() -> None:
    """If all wait for their devices, none of them is in the wrong branch."""
    assert {one.kind for one in staged().suspects} <= {SuspectKind.ELSEWHERE}


def test_a_rank_is_not_behind_in_what_its_stage_does_not_call() -> None:
    """What a stage has never called, the ranks of another do not wait for."""
    job = staged(state="blocked")
    assert (only(job).numbers, only(job).calls) == ((2, 3), None)
    assert "dispatched" not in text(job)
    behind = [report(n, calls=811, state="blocked") for n in range(2, 4)]
    said = text(judged(*waiting(2), *behind))
    assert "have not dispatched call 812 of train_step" in said
