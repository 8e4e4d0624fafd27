"""From the files of NCCL Inspector to the rank that its collectives wait for."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jaxmon.report.job import records
from jaxmon.report.job.text import lines
from jaxmon.report.job.verdict import judge
from jaxmon_exporter.collectors.inspector import recent
from jaxmon_exporter.collectors.registry import NAMES
from jaxmon_exporter.options import Options
from jaxmon_exporter.ranks import Beside, Ranks
from jaxmon_exporter.service import Service
from tests.fakes.agents import Serve
from tests.fakes.nccl.inspector import Rank, Writer
from tests.inspected import Inspected
from tests.ranks import report
from tests.support import http_get, until


HOST = "host-0"
RANKS = 4


class Job:
    """Four processes of a host, of which number *late* comes last to everything."""

    def __init__(self, directory: Path, serve: Serve, stack: ExitStack) -> None:
        self.late = 2
        self._writers = [Writer(directory, HOST, 1000 + one) for one in range(RANKS)]
        self._ranks = [Rank(one, RANKS) for one in range(RANKS)]
        for number, writer in enumerate(self._writers):
            rank = json.dumps(report(number, count=RANKS, age=0.1)).encode()
            serve(number, rank, target="/debug/rank")
            stack.callback(writer.close)

    def step(self, count: int = 1) -> None:
        """Write so many collectives of all ranks."""
        for number, writer in enumerate(self._writers):
            for one in range(count):
                micros = 1_000 if number == self.late else 9_000 + 10 * one
                writer.launch(self._ranks[number], "ReduceScatter", micros=micros)
            writer.flush()


@pytest.fixture
def job(tmp_path: Path, serve: Serve) -> Any:
    with ExitStack() as stack:
        yield Job(tmp_path, serve, stack)


def fail(error: BaseException) -> None:
    raise error


def test_the_rank_is_named(job: Job, tmp_path: Path, run_dir: Path) -> None:
    """Once it has come last in three windows, and no longer when it does not."""
    inspected = Inspected(tmp_path, run_dir, host=HOST)
    ranks = Ranks(run_dir, fail, beside=Beside(collectives=inspected.collector.found))

    def said() -> str:
        inspected.now += 15.0
        inspected.poll()
        ranks._read()
        page = json.loads(json.dumps(ranks.document(stacks=False)))
        verdict = judge([records.host("host-0:9467", page)])
        return " ".join(" ".join(lines(verdict, 100)).split())

    inspected.poll()
    texts = []
    for window in range(6):
        if window == 3:
            job.late = -1
        job.step(500)
        texts.append(said())
    ranks.close()
    assert [("comes last to" in text) for text in texts] == [False] * 2 + [True] + (
        [False] * 3
    )
    assert (
        "rank 2 (host-0, pid 1002) comes last to ReduceScatter of 16 to 256 MiB among "
        "4 ranks: its kernels take 1 ms, those of the median rank 11 ms"
    ) in texts[2]


def test_a_sidecar_serves_times_of_collectives(
    job: Job, tmp_path: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To those who may read its ranks, once there are three windows."""
    monkeypatch.setattr(recent, "_LEAST_SECONDS", 0.0)
    disabled = tuple(name for name in NAMES if name != "nccl_inspector")
    service = Service(
        Options(
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
