"""Who comes last to collectives, from the times of their kernels."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from jaxmon.facts.host import host
from jaxmon.job.collectives import late_document, late_lines
from jaxmon.job.model import Job
from jaxmon.job.verdict import judge
from jaxmon.limits import Limits
from tests.helpers.processes import each
from tests.job.ranks import report


RANKS, WINDOWS, SECONDS, STEPS = 8, 3, 15.0, 300
# Seconds of the data alone, and between two collectives.
TRANSFER, STEP = 1e-3, 50e-3

Late = Callable[[random.Random, int, int], float]
"""Returns by how much a rank is late in a step."""


def timed(
    late: Late, seed: int = 0, *, ranks: int = RANKS, steps: int = STEPS
) -> list[list[dict[str, float]]]:
    """Return windows of ranks whose collectives start when all are there."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    found: list[list[dict[str, float]]] = [[] for _ in range(ranks)]
    for _ in range(WINDOWS):
        sums = [[0.0, 0.0] for _ in range(ranks)]
        for step in range(steps):
            arrivals = [
                abs(chance.gauss(0, 0.5e-3)) + late(chance, one, step)
                for one in range(ranks)
            ]
            last = max(arrivals)
            for of, arrival in zip(sums, arrivals, strict=True):
                seconds = TRANSFER + last - arrival
                of[0] += seconds
                of[1] += seconds * seconds
        for windows, of in zip(found, sums, strict=True):
            windows.append(
                {
                    "launched": steps,
                    "recorded": steps,
                    "seconds": of[0],
                    "squares": of[1],
                }
            )
    return found


def collectives(
    windows: list[list[dict[str, float]]], first: int = 0, **options: Any
) -> dict[str, Any]:
    """Return what the sidecar of ranks from *first* on reports of them."""
    return {
        "age_seconds": 3.0,
        "seconds": [SECONDS] * WINDOWS,
        "ranks": [
            {
                "host": f"host-{(first + number) // 8}",
                "pid": 1000 + first + number,
                "communicator": "0x7f",
                "rank": first + number,
                "ranks": RANKS,
                "collective": "AllGather",
                "size": "under_256MiB",
                "windows": one,
            }
            for number, one in enumerate(windows)
        ],
        **options,
    }


def judged(
    *found: dict[str, Any] | None, age: float = 0.1, limits: Limits | None = None
) -> Job:
    """Return the verdict on a job that gets on, from hosts with these collectives."""
    each_has = RANKS // len(found)
    pages = [
        host(
            f"host-{place}",
            {
                "ranks": [
                    report(place * each_has + one, count=RANKS, age=age)
                    for one in range(each_has)
                ],
                "collectives": one_host,
            },
        )
        for place, one_host in enumerate(found)
    ]
    [job] = judge(pages, limits).jobs
    return job


def named(job: Job) -> list[int | None]:
    return [one.rank.index for one in job.late_ranks]


def by(number: int, seconds: float) -> Late:
    """Return that rank *number* is late by *seconds* in each step."""
    return lambda _, one, __: seconds if one == number else 0.0


def test_the_last_one_is_named_by_what_the_others_wait() -> None:
    """Its kernels are the shortest; how long the others wait is how late it is."""
    recorded = collectives(timed(by(5, 20e-3)))
    job = judged(recorded)
    [one] = job.late_ranks
    more = Limits(rank_slow_share=one.ratio * 1.01)
    assert judged(recorded, limits=more).late_ranks == ()
    assert one.rank.index == 5
    assert one.ratio == pytest.approx(20e-3 * STEPS / SECONDS, rel=0.05)
    assert one.median - one.mean == pytest.approx(20e-3, rel=0.05)
    text = " ".join(" ".join(late_lines(job.late_ranks, 90)).split())
    assert text.startswith(
        "NCCL Inspector: rank 5 (host-0, pid 1005) comes last to AllGather of 16 to "
        "256 MiB among 8 ranks: its kernels take 1 ms, those of the median rank 21 ms"
    )
    [said] = late_document(job.late_ranks)
    assert (said["rank"], said["nccl_rank"]) == (5, 5)
    assert said["verdict"] in text


def test_ranks_of_several_hosts_are_compared() -> None:
    """Whichever sidecar has read them, at whatever times."""
    windows = timed(by(6, 20e-3))
    assert named(judged(collectives(windows[:4]), collectives(windows[4:], 4))) == [6]


def test_several_may_be_late() -> None:
    """The worst is first."""
    job = judged(
        collectives(
            timed(lambda _, one, __: {1: 15e-3, 2: 20e-3}.get(one, 0.0), steps=200)
        )
    )
    assert named(job) == [2, 1]
    alike = judged(collectives(timed(lambda _, one, __: 20e-3 * (one in (1, 2)))))
    assert sorted(filter(None, named(alike))) == [1, 2]


HEALTHY: dict[str, tuple[Late]] = {
    "alike": (lambda *_: 0.0,),
    "each at times": (lambda chance, *_: 30e-3 * (chance.random() < 0.1),),
    "one pause": (lambda _, one, step: 10.0 * (one == 3 and step == 100),),
    "a little": (by(3, 1e-3),),
    "less than a tenth of the time": (by(3, 8e-3),),
    "all but one wait for the host": (lambda _, one, __: 20e-3 * (one != 3),),
}


@each(HEALTHY)
def test_no_rank_is_accused_without_reason(late: Late) -> None:
    """Nor if one of them once pauses, or most of them are late together."""
    for seed in range(5):
        assert named(judged(collectives(timed(late, seed, steps=120)))) == []


def test_what_does_not_suffice() -> None:
    """Old times, too few, of one rank, or a job that hangs: nothing is said."""
    windows = timed(by(5, 20e-3))
    assert named(judged(collectives(windows, age_seconds=200.0))) == []
    assert named(judged(collectives(windows[5:6], 5))) == []
    assert named(judged(collectives([one[:2] for one in windows]))) == []
    few = [[one | {"recorded": 5} for one in each_rank] for each_rank in windows]
    assert named(judged(collectives(few))) == []
    assert named(judged(None)) == []
    assert named(judged(collectives(windows), age=600.0)) == []


@pytest.mark.parametrize("field", ["communicator", "collective", "size", "ranks"])
def test_only_what_is_alike_is_compared(field: str) -> None:
    """Half of the ranks take longer for something else."""
    found = collectives(timed(lambda *_: 0.0))
    for one in found["ranks"][:5]:
        one[field] = {"collective": "AllReduce", "size": "larger"}.get(field, 16)
        for window in one["windows"]:
            window["seconds"] *= 30
            window["squares"] *= 900
    assert named(judged(found)) == []


def test_it_is_named_once() -> None:
    """By the collectives for which the others wait for longest."""
    found = collectives(timed(by(5, 20e-3)))
    for collective, late in (("AllReduce", 30e-3), ("ReduceScatter", 10e-3)):
        more = collectives(timed(by(5, late)))["ranks"]
        found["ranks"] += [{**one, "collective": collective} for one in more]
    [one] = judged(found).late_ranks
    assert (one.rank.index, one.collectives.collective) == (5, "AllReduce")


def test_the_ranks_of_another_job_are_not_named() -> None:
    """Whose processes may be on the same host."""
    late = collectives(timed(by(5, 20e-3)))
    for one in late["ranks"]:
        one["pid"] += 8
    both = [
        report(one, count=RANKS, age=0.1, coordinator=f"10.0.0.{job}:1234")
        | {"pid": 1000 + 8 * job + one, "host": "host-0"}
        for job in (0, 1)
        for one in range(RANKS)
    ]
    jobs = judge([host("host-0", {"ranks": both, "collectives": late})]).jobs
    found = {one.coordinator: named(one) for one in jobs}
    assert found == {"10.0.0.0:1234": [], "10.0.0.1:1234": [5]}


def test_collectives_may_vary_by_more_than_a_rank_is_late() -> None:
    """Of many, the mean is known well."""
    noisy = timed(
        lambda chance, one, _: abs(chance.gauss(0, 20e-3)) + 10e-3 * (one == 5),
        steps=1000,
    )
    assert named(judged(collectives(noisy))) == [5]


def test_three_are_shown() -> None:
    """Of more, their number; all are in the document."""
    late = {0: 20e-3, 1: 21e-3, 2: 22e-3}
    windows = timed(lambda _, one, __: late.get(one, 0.0))
    found = collectives(windows)
    more = collectives(timed(by(3, 30e-3)))["ranks"]
    found["ranks"] += [{**one, "size": "larger"} for one in more]
    job = judged(found)
    assert named(job) == [3, 2, 1, 0]
    text = list(late_lines(job.late_ranks, 300))
    assert [one.partition(" (")[0].strip() for one in text[:3]] == [
        f"NCCL Inspector: rank {number}" for number in (3, 2, 1)
    ]
    assert text[3].strip() == "and 1 more"
    assert len(late_document(job.late_ranks)) == 4


def test_it_is_late_in_each_window() -> None:
    """If it came last in two of three, that may have been a phase of the program."""
    windows = timed(by(5, 20e-3))
    for each_rank, calm in zip(windows, timed(by(5, 2e-3), 1), strict=True):
        each_rank[1] = calm[1]
    assert named(judged(collectives(windows))) == []


def test_no_one_waits_longer_than_time_passes() -> None:
    """However many collectives a sidecar says were launched."""
    windows = timed(by(5, 20e-3))
    for each_rank in windows:
        for one in each_rank:
            one["launched"] = 1e9
    [found] = judged(collectives(windows)).late_ranks
    assert 0.9 < found.ratio <= 1


def test_a_sample_is_enough() -> None:
    """NCCL before 2.30.3 records one of many: their number is known all the same."""
    windows = timed(by(5, 20e-3), steps=30)
    for each_rank in windows:
        for one in each_rank:
            one["launched"] *= 10
    [found] = judged(collectives(windows)).late_ranks
    assert found.ratio == pytest.approx(20e-3 * 300 / SECONDS, rel=0.1)


def test_gpus_of_a_process_are_told_apart_by_nccl() -> None:
    """If a process has several ranks of a communicator, that of NCCL is named."""
    found = collectives(timed(by(5, 20e-3)))
    for one in found["ranks"]:
        one["pid"] = 1000 + one["rank"] // 4
    text = " ".join(late_lines(judged(found).late_ranks, 200))
    assert "rank 1 (host-0, pid 1001) comes last" in text
    assert "among 8 ranks, as rank 5 of NCCL" in text


def test_a_later_release_may_have_other_sizes() -> None:
    """Their name is not for people, and is omitted."""
    found = collectives(timed(by(5, 20e-3)))
    for one in found["ranks"]:
        one["size"] = "over_1TiB"
    [said] = late_document(judged(found).late_ranks)
    assert "comes last to AllGather among 8 ranks" in said["verdict"]


def test_odd_reports_are_read() -> None:
    """A sidecar may report anything."""
    odd: Any
    for odd in (None, "x", -1, 0, 1e308, 10**400, [], {}, [None], [0.0] * 3, True):
        for key in ("age_seconds", "seconds", "ranks"):
            judged(collectives(timed(by(5, 20e-3), steps=20), **{key: odd}))
        for field in ("pid", "rank", "ranks", "collective", "size", "windows"):
            found = collectives(timed(by(5, 20e-3), steps=20))
            for one in found["ranks"][4:]:
                one[field] = odd
            list(late_lines(judged(found).late_ranks, 80))
        for field in ("launched", "recorded", "seconds", "squares"):
            found = collectives(timed(by(5, 20e-3), steps=20))
            for one in found["ranks"][4:]:
                one["windows"][0][field] = odd
            list(late_lines(judged(found).late_ranks, 80))
