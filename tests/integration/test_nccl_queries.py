"""When sidecars query the RAS of a job, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxmon_exporter.collectors import nccl as client
from tests.fakes.nccl.jobs import job
from tests.fakes.nccl.server import ras
from tests.helpers.processes import each
from tests.job.nccl import at_once, expected, healthy, lossy, poller, values


if TYPE_CHECKING:
    import pytest


# Hosts, and polls without a query at least and at most; in trouble as well.
PAUSES = (
    (1, (4, 8), (2, 2)),
    (9, (6, 12), (2, 4)),
    (64, (14, 26), (4, 8)),
    (200, (14, 26), (4, 8)),
)


def test_what_is_sent() -> None:
    """It talks as NVIDIA's client does, with a timeout, and asks for JSON first."""
    with ras(healthy()) as served:
        values(poller(served.address))
        served.speaks_json = False
        values(poller(served.address))
        commands = ["CLIENT PROTOCOL 2", "TIMEOUT 3", "SET FORMAT json", "STATUS"]
        assert served.commands == [commands, commands]


def test_a_job_that_comes_and_goes(free_port: int) -> None:
    """No job is normal, before and after one, and leaves no values behind."""
    polled = poller(f"127.0.0.1:{free_port}")
    polled.poll()
    status = polled.status()
    assert (status.reason, status.absent) == ("no_job", True)
    assert "NCCL_RAS_ADDR" in status.message
    with ras(healthy()) as served:
        polled = poller(served.address)
        assert values(polled)
    polled.poll()
    status = polled.status()
    assert (status.success, status.reason, status.absent) == (False, "no_job", True)
    assert polled.families() == []


def test_a_stopped_process_hides_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of a host share the port: another one responds to the next attempt."""
    monkeypatch.setattr(client, "_GREETING_SECONDS", 0.1)
    with ras(healthy(), unheard=3) as served:
        assert values(poller(served.address)) == expected(served.job)
        served.unheard = 4
        polled = poller(served.address)
        polled.poll()
        assert polled.status().reason == "timeout"
        assert not polled.status().absent


def test_the_sidecar_of_the_first_rank_queries_for_all() -> None:
    """Others query now and then, say how old that is, and name no rank."""
    now = [100.0]
    made = lossy()
    with ras(made) as served:
        first = poller(served.address, at_once)
        for _ in range(5):
            found = values(first)
        assert served.queries == 5
        assert [name for name in found if "missing" in name]
        elsewhere = poller(served.address, at_once, clock=lambda: now[0])
        for one in made.every():
            one.host = one.host.replace("127.0.", "192.0.2.")[:-2]
        for _ in range(15):
            found = values(elsewhere)
            now[0] += 15
        assert served.queries == 5 + 5
    assert found == expected(made)
    (age,) = (one.samples for one in elsewhere.families() if "_age_" in one.metric.name)
    assert age == [("jaxmon_nccl_reply_age_seconds", 30.0)]


def test_without_a_place_each_fourth_poll_queries() -> None:
    """Text names no host of a healthy job: all sidecars query, each now and then."""
    with ras(healthy(), speaks_json=False) as served:
        polled = poller(served.address, at_once)
        for _ in range(8):
            values(polled)
        assert served.queries == 2


@each({str(nodes): (nodes, *pauses) for nodes, *pauses in PAUSES})
def test_the_larger_a_job_the_rarer_a_query(nodes, usual, troubled):
    """Sidecars away from the first rank share the queries; trouble makes them more."""
    drawn: list[tuple[int, int]] = []

    def chance(least: int, most: int) -> int:
        drawn.append((least, most))
        return 0

    made = job(nodes, 2)
    for one in made.every():
        one.host = one.host.replace("127.", "203.")
    with ras(made) as served:
        polled = poller(served.address, chance)
        values(polled)
        made.communicators[0].members[1].trouble = "unresponsive"
        values(polled)
    assert drawn == [(0, 3), usual, troubled]


def test_sidecars_that_start_together_do_not_query_together() -> None:
    """The first query is in one of the first polls, by chance."""
    with ras(healthy()) as served:
        polled = poller(served.address, lambda _, most: most)
        assert [bool(values(polled)) for _ in range(4)] == [False] * 3 + [True]


def test_what_is_too_large_in_json_is_read_as_text() -> None:
    """A job beyond the limit is described, if in fewer words."""
    with ras(healthy()) as served:
        polled = poller(served.address, max_bytes=10_000)
        polled.poll()
        assert polled.status().reason == "too_large"
        assert values(polled) == expected(served.job)
        assert served.commands[-1] == ["CLIENT PROTOCOL 2", "TIMEOUT 3", "STATUS"]
