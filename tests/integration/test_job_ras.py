"""What NCCL's RAS knows of a job, beside the ranks that a sidecar serves."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jaxmon.facts.host import host
from jaxmon.job.model import Verdict
from jaxmon.job.text import lines
from jaxmon.job.verdict import judge
from jaxmon_exporter.collectors.nccl import Nccl
from jaxmon_exporter.ranks import HostSources
from tests.fakes.nccl.jobs import Job as NcclJob
from tests.fakes.nccl.jobs import job as nccl_job
from tests.fakes.nccl.server import ras as nccl_ras
from tests.helpers.processes import http_get, until
from tests.job.ranks import report, waiting
from tests.job.served import agent, ranks_of, read, sidecar


def verdict_with_ras(run_dir: Path, stack: ExitStack, job: NcclJob) -> str:
    """Return what is printed about four waiting ranks whose RAS says this."""
    for number, one in enumerate(waiting(4)):
        agent(stack, run_dir, number, one | {"pid": 4000 + number})
    ras = stack.enter_context(nccl_ras(job))
    found = Nccl(ras.address, chance=lambda least, _: 0 if least < 2 else least)
    for _ in range(2):
        list(found.collect())
    page = json.loads(
        json.dumps(
            read(ranks_of(run_dir, stack, sources=HostSources(nccl=found.found)))
        )
    )
    verdict = judge([host("host-1:9467", page)])
    return " ".join(" ".join(lines(verdict, 100)).split())


def test_what_nccl_knows_is_said_of_our_ranks(run_dir: Path, stack: ExitStack) -> None:
    """
    In a hang in which all ranks wait for their devices, the one that NCCL waits for is
    named by number, and a process that it does not reach; by host and process, if that
    is none of ours.
    """
    job = nccl_job(1, 4)
    members = job.communicators[0].members
    for one in members:
        one.host = "127.0.0.1"
    members[2].counts[4] -= 5
    members[3].trouble = "unresponsive"
    text = verdict_with_ras(run_dir, stack, job)
    assert text.startswith("HUNG")
    assert (
        "NCCL's RAS, just now: rank 3 (host-0, pid 4003) does not respond to NCCL; "
        "rank 2 (host-0, pid 4002) is 5 collectives behind"
    ) in text


def test_a_sidecar_serves_what_its_collector_read(run_dir, stack):
    """With ranks and addresses of its host; without the collector, nothing of it."""
    agent(stack, run_dir, 0, report(0))
    ras = stack.enter_context(nccl_ras(nccl_job(1, 4)))
    options: dict[str, Any] = {"nccl_ras": ras.address, "nccl_interval": 1.0}
    with sidecar(run_dir, enabled="nccl", peer_access=True, **options) as address:
        url = f"http://{address}/job"
        until(lambda: "nccl" in json.loads(http_get(url)), "a reply of RAS")
        page = json.loads(http_get(url))
    assert page["nccl"]["processes"] == {"responding": 4}
    assert "127.0.0.1" in page["addresses"]
    with sidecar(run_dir, peer_access=True) as address:
        assert "nccl" not in json.loads(http_get(f"http://{address}/job"))


def test_a_ras_that_knows_of_nothing_leaves_the_network(run_dir, stack):
    """All processes respond, and none is behind: that is said, too."""
    text = verdict_with_ras(run_dir, stack, nccl_job(1, 4))
    assert "all 4 processes respond, and no rank has launched fewer" in text


def test_that_ras_is_not_read_is_said_on_gpus_only() -> None:
    """On other platforms there is none."""
    for platform, said in (("gpu", True), ("cpu", False)):
        some = [one | {"setup": "s"} for one in waiting(4)]
        page = {"ranks": some, "setups": {"s": {"platform": platform}}}
        verdict = judge([host("h", page)])
        text = " ".join(" ".join(lines(Verdict(verdict.jobs), 100)).split())
        assert ("no sidecar reads NCCL's RAS" in text) is said
