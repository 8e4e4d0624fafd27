"""In what the ranks of a job differ, from what they report."""

from typing import Any

from jaxmon.facts.host import host
from jaxmon.job.differences import deviating_ranks
from jaxmon.job.model import Job, Verdict
from jaxmon.job.text import document, lines
from jaxmon.job.verdict import judge
from tests.job.judged import text
from tests.job.ranks import STEP, report


COMMON = {
    "jax": "0.10.2",
    "jaxlib": "0.10.2",
    "devices": "2",
    "jax_enable_x64": "False",
}
FLAG = "XLA_FLAGS --xla_gpu_enable_x"


def judged(
    setups: dict[int, dict[str, str]], count: int = 4, **others: dict[str, Any]
) -> Job:
    """Return the verdict on a job whose ranks have *setups*, and report *others*."""
    pages = []
    for first in range(0, count, 8):
        known: dict[str, dict[str, str]] = {}
        ranks = []
        for number in range(first, min(first + 8, count)):
            setup = setups.get(number, COMMON)
            known[str(id(setup))] = setup
            options = {"age": 0.5, **others.get(f"rank_{number}", {})}
            ranks.append(report(number, count=count, setup=str(id(setup)), **options))
        pages.append(host(f"host-{first // 8}", {"ranks": ranks, "setups": known}))
    [job] = judge(pages).jobs
    return job


def differences(job: Job) -> list[tuple[tuple[int, ...], list[tuple[str, str, str]]]]:
    """Return who differs, and in what."""
    return [
        (one.numbers, [(of.name, of.value, of.usual) for of in one.differences])
        for one in deviating_ranks(job.ranks)
    ]


def test_ranks_that_are_alike_are_not_mentioned() -> None:
    """Nor are those of which nothing is known, and those without devices yet."""
    young = {name: value for name, value in COMMON.items() if name != "devices"}
    job = judged({2: young, 3: {}})
    assert differences(job) == []
    assert "differ" not in text(job)
    assert document(Verdict((job,)))["jobs"][0]["differ"] == []


def test_the_odd_ones_out_are_named() -> None:
    """What sets them apart stands in one line."""
    old = {**COMMON, "jax": "0.10.1", "jaxlib": "0.10.1", FLAG: "true"}
    wide = {**COMMON, "jax_enable_x64": "True", "package optax": "0.2.8"}
    job = judged({1: wide, 8: old, 9: old}, count=12)
    assert differences(job) == [
        ((1,), [("jax_enable_x64", "True", "False"), ("package optax", "0.2.8", "")]),
        (
            (8, 9),
            [
                ("jax", "0.10.1", "0.10.2"),
                ("jaxlib", "0.10.1", "0.10.2"),
                (FLAG, "true", ""),
            ],
        ),
    ]
    said = text(job)
    assert said.startswith("PROGRESSING")
    assert (
        "differs: rank 1 (host-0, pid 1001) has jax_enable_x64 True, others False; "
        "optax 0.2.8, others not set"
    ) in said
    assert (
        "differ: ranks 8-9 (on host-1) have jax 0.10.1, others 0.10.2; jaxlib 0.10.1, "
        f"others 0.10.2; {FLAG} true, others not set"
    ) in said


def test_of_two_halves_the_one_without_rank_0_is_named() -> None:
    """It is unknown which is right, and both values are said."""
    job = judged({2: COMMON | {"jax": "9"}, 3: COMMON | {"jax": "9"}})
    assert differences(job) == [((2, 3), [("jax", "9", "0.10.2")])]


def test_many_values_are_counted() -> None:
    """A directory of each rank's own is one difference, whatever their number."""
    name = "jax_compilation_cache_dir"
    job = judged({n: {**COMMON, name: f"/cache/{n}"} for n in range(64)}, count=64)
    [(numbers, [(_, own, usual)])] = differences(job)
    assert (numbers, own, usual) == (tuple(range(1, 64)), "", "/cache/0")
    assert f"63 values of {name}, others /cache/0" in text(job)


def test_programs_that_differ_are_named() -> None:
    """If as many were compiled; who has compiled fewer is about to compile the rest."""
    job = judged({}, rank_3={"fingerprint": "badbadbadbad"})
    assert differences(job) == [((3,), [(f"program of {STEP}", "badbadba", "f00d")])]
    said = "rank 3 (host-0, pid 1003) has another program of train_step: badbadba"
    assert said in text(job)

    ranks = [report(one, age=0.5) for one in range(3)]
    behind = report(3, age=0.5, fingerprint="badbadbadbad")
    for number, one in enumerate([*ranks, behind]):
        one["functions"][STEP]["programs"] = 2 if number < 3 else 1
    [job] = judge([host("host", {"ranks": [*ranks, behind]})]).jobs
    assert differences(job) == []


def test_parts_of_a_job_may_run_programs_of_their_own() -> None:
    """Stages of a pipeline, each on the devices of some processes, differ by design."""
    stages = [report(one, age=0.5, fingerprint=f"stage{one // 2}") for one in range(4)]
    for one in stages:
        one["functions"][STEP]["devices"] = 4
        one["setup"] = "common"
    page = {"ranks": stages, "setups": {"common": COMMON}}
    [job] = judge([host("host", page)]).jobs
    assert differences(job) == []


def test_who_has_ended_is_left_out() -> None:
    """What ran before is of no concern to those that run now."""
    gone = {"ended": "finished", "ended_seconds": 5.0}
    job = judged({3: COMMON | {"jax": "9"}}, rank_3=gone)
    assert differences(job) == []


def test_hostile_setups_are_bounded() -> None:
    """Whatever sidecars report, little is kept and printed, and nothing raised."""
    strange: list[Any] = [None, 7, [], "x", {"a": 1}, {"b": {"c": "d"}}]
    for one in strange:
        page = {"ranks": [report(0, setup="k")], "setups": {"k": one}}
        assert host("h", page).ranks[0].setup == {}
        assert host("h", {"ranks": [report(0, setup="k")], "setups": one}).ranks
    for key in (None, 7, {"k": "v"}, ["k"]):
        page = {"ranks": [report(0, setup=key)], "setups": {"k": {"a": "b"}}}
        assert host("h", page).ranks[0].setup == {}
    large = {f"NCCL_{n}": "\x1b[31m" + "v" * 5000 for n in range(5000)}
    job = judged({n: {**large, "jax": str(n)} for n in range(3)}, count=64)
    printed = lines(Verdict((job,)), 80)
    assert len(printed) < 60
    assert not any("\x1b" in line for line in printed)
