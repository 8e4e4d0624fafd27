"""Which ranks of a job NCCL's RAS means."""

import socket
from typing import Any

from jaxmon.facts.host import host
from jaxmon.job.collectives import ras_document, ras_text
from jaxmon.job.model import Job
from jaxmon.job.verdict import judge
from jaxmon_exporter.ranks import addresses
from tests.job.ranks import waiting


def judged(*found: dict[str, Any] | None) -> Job:
    """Return the verdict on four ranks of two hosts, to whom RAS says *found*."""
    pages = []
    for place, nccl in enumerate(found):
        ranks = [
            one | {"pid": 7 + one["index"] % 2, "host": f"host-{place}"}
            for one in waiting(2, first=2 * place)
        ]
        page: dict[str, Any] = {"ranks": ranks, "addresses": [f"10.0.0.{place}"]}
        pages.append(host(f"host-{place}", page | ({"nccl": nccl} if nccl else {})))
    [job] = judge(pages).jobs
    return job


def ras(age: float = 1.0, **more: Any) -> dict[str, Any]:
    """Return what RAS says."""
    return {"age_seconds": age, "processes": {"responding": 4}, **more}


def test_hosts_tell_processes_with_one_number_apart() -> None:
    """By the address that NCCL uses; the latest reply counts."""
    behind = [{"host": "10.0.0.1", "pid": 7, "rank": 9, "lag": 1}]
    job = judged(ras(30.0), ras(2.0, behind=behind, lagging=1, stuck=1))
    assert ras_text(job) == (
        "NCCL's RAS, 2 s ago: rank 2 (host-1, pid 7) is 1 collective behind"
    )
    found = ras_document(job.nccl)
    assert found is not None
    assert found["behind"] == [{"rank": 2, "host": "10.0.0.1", "pid": 7, "lag": 1}]
    assert found["target"] == "host-1"

    elsewhere = [{"host": "10.0.0.9", "pid": 7, "state": "dead"}]
    job = judged(ras(missing=elsewhere), None)
    assert "pid 7 on 10.0.0.9 is gone for NCCL" in ras_text(job)


def test_a_long_list_is_short() -> None:
    """Three are named, and the number of the others is said."""
    behind = [{"host": "a", "pid": n, "rank": n, "lag": 2} for n in range(100)]
    missing = [{"host": "b", "pid": n, "state": "dead"} for n in range(100)]
    job = judged(
        ras(
            behind=behind,
            lagging=500,
            missing=missing,
            processes={"responding": 1, "dead": 700},
        ),
        None,
    )
    text = ras_text(job)
    assert "697 more processes are missing" in text
    assert "497 more ranks are behind" in text
    assert len(text) < 400


def test_a_job_that_gets_on_has_no_need_of_it() -> None:
    """Ranks differ in collectives all the time."""
    ranks = waiting(4, age=0.1)
    page = {"ranks": ranks, "nccl": ras(lagging=1, behind=[{"host": "a", "lag": 1}])}
    [job] = judge([host("h", page)]).jobs
    assert ras_text(job) == ""


def test_addresses_are_those_of_the_kernel() -> None:
    """Each of them can be bound."""
    found = addresses()
    assert "127.0.0.1" in found
    for one in found:
        family = socket.AF_INET6 if ":" in one else socket.AF_INET
        if not one.startswith("fe80"):
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((one, 0))
