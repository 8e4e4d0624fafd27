"""From the files of NCCL Inspector to the rank that its collectives wait for."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jaxmon.facts.host import host
from jaxmon.job.text import lines
from jaxmon.job.verdict import judge
from jaxmon_exporter.collectors import collectives
from jaxmon_exporter.collectors.registry import NAMES
from jaxmon_exporter.options import SidecarOptions
from jaxmon_exporter.ranks import HostSources, Ranks
from jaxmon_exporter.service import Service
from tests.fakes.agents import Serve
from tests.fakes.nccl.inspector import NEW, OLD, Rank
from tests.helpers.processes import http_get, until
from tests.job.inspected import Inspected, Write, writing
from tests.job.ranks import report


HOST = "host-0"
RANKS = 4
LAST = "comes last to"


class Job:
    """Four processes of a host, of which number *late* comes last to everything."""

    def __init__(self, write: Write, serve: Serve, version: str = NEW) -> None:
        self.late = 2
        self._writers = [
            write(1000 + one, HOST, version=version) for one in range(RANKS)
        ]
        self._ranks = [Rank(one, RANKS) for one in range(RANKS)]
        for number in range(RANKS):
            rank = json.dumps(report(number, count=RANKS, age=0.1)).encode()
            serve(number, rank, target="/debug/rank")

    def gather(self, count: int, micros: int) -> None:
        """Write so many collectives to which all ranks come at the same time."""
        for rank, writer in zip(self._ranks, self._writers, strict=True):
            for _ in range(count):
                writer.launch(rank, "AllGather", micros=micros)
            writer.flush()

    def step(
        self, count: int, *, skipped: int = 0, kind: str = "ReduceScatter"
    ) -> None:
        """Write so many collectives of all ranks, each after some that are not."""
        for number, writer in enumerate(self._writers):
            for one in range(count):
                self._ranks[number].launched[kind] += skipped
                micros = 1_000 if number == self.late else 9_000 + 10 * one
                writer.launch(self._ranks[number], kind, micros=micros)
            writer.flush()


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    with writing(tmp_path) as start:
        yield start


@pytest.fixture
def job(write: Write, serve: Serve) -> Job:
    return Job(write, serve)


def fail(error: BaseException) -> None:
    raise error


@contextmanager
def judging(directory: Path, run_dir: Path) -> Iterator[Callable[..., str]]:
    """Give a function that returns the verdict after another 15 seconds, or so many."""
    inspected = Inspected(directory, run_dir, host=HOST)
    ranks = Ranks(
        run_dir, fail, sources=HostSources(collectives=inspected.collector.found)
    )

    def said(seconds: float = 15.0) -> str:
        inspected.now += seconds
        inspected.poll()
        ranks._read()
        page = json.loads(json.dumps(ranks.document(stacks=False)))
        verdict = judge([host("host-0:9467", page)])
        return " ".join(" ".join(lines(verdict, 100)).split())

    inspected.poll()
    yield said
    ranks.close()


def test_the_rank_is_named(job: Job, tmp_path: Path, run_dir: Path) -> None:
    """Once it has come last in three windows, and no longer when it does not."""
    texts = []
    with judging(tmp_path, run_dir) as said:
        for window in range(6):
            if window == 3:
                job.late = -1
            job.step(500)
            texts.append(said())
    assert [LAST in text for text in texts] == [False, False, True, *[False] * 3]
    assert (
        "rank 2 (host-0, pid 1002) comes last to ReduceScatter of 16 to 256 MiB among "
        "4 ranks: its kernels take 1 ms, those of the median rank 11 ms"
    ) in texts[2]


def test_who_sends_is_not_last(job: Job, tmp_path: Path, run_dir: Path) -> None:
    """In a broadcast the root has the shortest kernels, and others wait for nothing."""
    text = ""
    with judging(tmp_path, run_dir) as said:
        for _ in range(4):
            job.step(500, kind="Broadcast")
            text = said()
    assert LAST not in text


def test_ranks_are_compared_up_to_a_number(job, tmp_path, run_dir, monkeypatch):
    """A program may create communicators without end."""
    monkeypatch.setattr(collectives, "_MOST_RECENT", RANKS)
    inspected = Inspected(tmp_path, run_dir, host=HOST)
    inspected.poll()
    for _ in range(3):
        inspected.now += 15.0
        job.step(1)
        job.gather(1, 8_000)
        inspected.poll()
    found = inspected.collector.found()
    assert found is not None
    assert 0 < len(found.ranks) <= RANKS


def test_the_rank_is_named_of_many(job, tmp_path, run_dir, monkeypatch):
    """If a sidecar reports some ranks only, those of a communicator stay together."""
    monkeypatch.setattr(collectives, "_MOST_ROWS", RANKS)
    text = ""
    with judging(tmp_path, run_dir) as said:
        for _ in range(3):
            job.gather(500, 8_000)
            job.step(500)
            text = said()
    assert "rank 2 (host-0, pid 1002) comes last to ReduceScatter" in text


@pytest.mark.parametrize("version", [OLD, NEW])
def test_what_is_not_recorded_may_be_like_what_is(
    version: str, write: Write, serve: Serve, tmp_path: Path, run_dir: Path
) -> None:
    """Before NCCL 2.30.3 a record stands for those before it; since then, for none."""
    job = Job(write, serve, version)
    with judging(tmp_path, run_dir) as said:
        for _ in range(4):
            job.step(20, skipped=24)
            text = said()
    assert (LAST in text) == (version == OLD)


def test_a_sidecar_serves_times_of_collectives(job, tmp_path, run_dir, monkeypatch):
    """To those who may read its ranks, once there are three windows."""
    monkeypatch.setattr(collectives, "_LEAST_SECONDS", 0.0)
    disabled = tuple(name for name in NAMES if name != "nccl_inspector")
    service = Service(
        SidecarOptions(
            host="127.0.0.1",
            port=0,
            run_dir=run_dir,
            disabled=disabled,
            peer_access=True,
            nccl_inspector=str(tmp_path),
            nccl_inspector_host=HOST,
            nccl_inspector_interval=0.1,
        )
    )
    url = f"http://127.0.0.1:{service.start()}/job"

    found: Any = None

    def served() -> bool:
        nonlocal found
        job.step(20)
        found = json.loads(http_get(url))["collectives"]
        return found is not None

    try:
        assert not served()
        until(served, "three windows")
    finally:
        service.stop()
    assert {one["pid"] for one in found["ranks"]} <= set(range(1000, 1000 + RANKS))
    assert {one["collective"] for one in found["ranks"]} == {"ReduceScatter"}
