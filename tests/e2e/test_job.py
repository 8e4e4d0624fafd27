"""A real job of four processes on two hosts, in which one thing after another hangs."""

import json
import time
from pathlib import Path

import pytest

from jaxmon import catalog
from jaxmon.exposition.parse import labels
from jaxmon.facts.host import host
from jaxmon.job.stragglers import find_stragglers
from tests.helpers.processes import http_get, until
from tests.helpers.sidecars import values
from tests.job.running import Job, place, running


# Rank, and kind that is reported.
FAULTS = {
    "asleep": (3, "blocked"),
    "loader": (1, "data"),
    "prefetch": (0, "data"),
    "lock": (2, "lock"),
    "compile": (0, "compile"),
    "stopped": (2, "stopped"),
}
# While the last rank is asleep, by host.
STATES = [["device"], ["blocked", "device"]]
RUN = f"\n{catalog.RUN_SECONDS.name}"
SERIES = f"{catalog.CALL_AGE_SECONDS.name}{{"


def steps(job: Job, rank: int) -> int:
    pages = [json.loads(http_get(f"{one.url}/job")) for one in job.sidecars]
    [found] = [
        one for page in pages for one in page["ranks"] if one.get("index") == rank
    ]
    return int(found["loops"]["train"]["steps"])


def pages(job: Job) -> list[str]:
    return [one.get() for one in job.sidecars]


def ages(job: Job) -> list[dict[str, list[float]]]:
    """Return the ages of calls of processes that do not get on, by state and host."""
    found = []
    for one in job.sidecars:
        by_state: dict[str, list[float]] = {}
        for name, age in values(one.get()).items():
            if name.startswith(SERIES):
                by_state.setdefault(labels(name)["state"], []).append(age)
        found.append(by_state)
    return found


def slow_rank(job: Job) -> tuple[int | None, str, str]:
    """Return number, kind and place of the one rank that makes *job* slower."""
    hosts = [
        host(one.url, json.loads(http_get(f"{one.url}/job"))) for one in job.sidecars
    ]
    found = find_stragglers([rank for one in hosts for rank in one.ranks], window=4.0)
    if found is None or len(found.stragglers) != 1:
        return None, "", ""
    [one] = found.stragglers
    kind = one.kind.value if 0.5 < one.spent / found.step <= 1.0 else ""
    return one.rank.index, kind, Path(one.place).name


def consequences(job: Job) -> list[int]:
    """Return the ranks that failed because of the first failure."""
    [found] = json.loads(job.examine("--json").output)["jobs"]
    return sorted(one["rank"] for one in found["consequences"])


def until_blamed(job: Job, kind: str, rank: int, where: str) -> None:
    """Wait until the others are said to wait for *rank* alone."""
    expected = [(kind, [rank], where)]
    until(lambda: job.suspects() == expected, f"{expected}")


def blames_thread(job: Job) -> None:
    """Assert that the thread is named which the rank waits for, and its error."""
    [said] = until(lambda: job.only()["suspects"][0]["gone"], "the thread")
    assert said.startswith("thread prefetch ended")
    assert "ValueError: record 7 is corrupt" in said
    assert place("reads") in said


@pytest.mark.parametrize(
    "faults",
    [
        # One that says where it is, and one that says nothing.
        pytest.param(("asleep", "stopped"), id="few"),
        pytest.param(tuple(FAULTS), id="all", marks=pytest.mark.exhaustive),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named(faults: tuple[str, ...]) -> None:
    """
    Asleep, at its loader, at a lock, compiling, stopped, in another branch of the
    program or killed: the verdict names the rank, what it does, and its line; and says
    of a job that is only slow that it gets on, and which rank makes it slow.
    """
    with running() as job:
        done = job.run()
        assert done.exit_code == 0
        assert job.only()["differ"] == []
        assert done.output.startswith("PROGRESSING: 4 ranks of train-7, on 2 hosts")
        # Only process 0 keeps the record of the run, named by the scheduler.
        [run] = until(job.runs, "the record of the run")
        assert (run["run"], run["starts"]) == ("train-7", 1)
        [page] = until(lambda: [one for one in pages(job) if RUN in one], "its page")
        assert page.count(f"{RUN}{{") == len(catalog.RUN_ACTIVITIES)

        job.inflict("slow", 1)
        before, said = steps(job, 1), list[str]()

        def stepped() -> bool:
            said.append(job.state(after=30.0))
            return steps(job, 1) > before + 2

        until(stepped, "three slow steps")
        assert set(said) == {"progressing"}
        expected = 1, "blocked", place("slow")
        until(lambda: slow_rank(job) == expected, "the slow rank", seconds=240)
        job.recover()

        for fault in faults:
            rank, kind = FAULTS[fault]
            began = time.monotonic()
            job.inflict(fault, rank)
            where = "" if fault == "stopped" else place(fault)
            until_blamed(job, kind, rank, where)
            if fault == "prefetch":
                blames_thread(job)
            if fault == "asleep":
                until(lambda: job.state() == "hung", "a hang")
                done = job.run("--after=3")
                assert done.exit_code == 1
                assert done.output.startswith("HUNG for ")
                assert "has not dispatched call" in " ".join(done.output.split())
                assert "ranks 0-2 wait in train_step" in " ".join(done.output.split())
                until(lambda: list(map(sorted, ages(job))) == STATES, "the metric")
                # There was a call within three seconds before; read a second ago.
                most = time.monotonic() - began + 5.0
                found = [
                    age for of in ages(job) for some in of.values() for age in some
                ]
                assert all(10.0 <= age <= most for age in found)
            job.recover()

        job.inflict("branch", 3)
        until_blamed(job, "program", 3, place("branch"))
        done = job.run("--after=3", "--stacks")
        groups = done.output.partition("\nrank 3:\n")[2]
        assert place("branch") in groups.partition("\n\n")[0]
        assert "\nranks 0-2:\n" in groups

        assert job.examine().exit_code == 0
        job.inflict("killed", 1)
        until(lambda: job.suspects()[:1] == [("killed", [1], "")], "the end of rank 1")
        until(lambda: (job.first() or {}).get("rank") == 1, "the first failure")
        assert job.first()["ending"] == "killed"


@pytest.mark.exhaustive
def test_a_rank_that_stays_away_from_a_barrier_is_named() -> None:
    """
    It has made as many calls as the others, which wait in a function of JAX. So is a
    rank in a callback of an XLA program, and one whose own device runs for ever what it
    has called for the first time.
    """
    with running(3, how="barrier") as job:
        job.inflict("absent", 1)
        until_blamed(job, "blocked", 1, place("absent"))
        said = " ".join(job.run("--after=3").output.split())
        assert "ranks 0, 2 wait in sync_global_devices, after call " in said
        assert f"{place('barrier')})" in said
        job.recover()

        job.inflict("callback", 0)
        until_blamed(job, "callback", 0, place("callback"))
        job.recover()

        job.inflict("spins", 2)
        until_blamed(job, "local", 2, place("spins"))
        said = " ".join(job.run("--after=3").output.split())
        assert "runs, on its own devices, spin, " in said


def test_the_first_failure_is_named() -> None:
    """
    A full disk under a checkpoint is named, also once all ranks are gone. Before that,
    ranks stand beside their slots.
    """
    with running(3) as job:
        ranks = {pid: (rank, 3) for rank, pid in enumerate(job.pids)}
        until(lambda: job.listed() == ranks, "the ranks")
        job.inflict("full", 2)
        first = until(job.first, "a failure")
        assert (first["rank"], first["pid"]) == (2, job.pids[2])
        assert first["what"] == "OSError: No space left on device"
        assert first["where"].endswith(place("full"))
        assert first["function"] == "save"
        assert abs(time.time() - first["time"]) < 600.0

        job.inflict("killed", 0)
        until(lambda: consequences(job) == [0, 1], "the end of the others")
        assert job.first()["rank"] == 2
        done = job.examine()
        assert done.exit_code == 1
        assert "first: rank 2 " in done.output
