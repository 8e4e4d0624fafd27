"""The HTTP server among clients that request more than they read."""

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, gauge
from jaxmon.host.http.server import Response
from tests.helpers.processes import until
from tests.helpers.servers import Site, everything, head_of, sites, status


@pytest.fixture
def make_site() -> Iterator[Callable[..., Site]]:
    with sites() as make:
        yield make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


class TestSharedPages:
    """One response answers all waiting requests, and no client gets an old one."""

    def test_requests_that_came_together_share_a_page(self, site: Site) -> None:
        """A hundred waiting requests share a page; another format is another page."""
        strict = "Accept: application/openmetrics-text"
        with site.connect() as first, ExitStack() as stack:
            first.sendall(head_of("/hold"))
            assert site.held.wait(90)
            clients = [stack.enter_context(site.connect()) for _ in range(100)]
            for number, client in enumerate(clients):
                client.sendall(head_of("/metrics", *[strict] * (number % 2)))
            site.release.set()
            pages = [everything(client) for client in clients]

        assert all(b"jaxmon_host_cpus 2\n" in page for page in pages)
        assert sum(page.endswith(b"# EOF\n") for page in pages) == 50
        # They are accepted in a few parts.
        assert site.seconds.count <= 20

    def test_no_page_is_older_than_its_request(self, site: Site) -> None:
        """What was true before a request is on its page, also during a flood."""
        with ThreadPoolExecutor(8) as pool:
            others = [pool.submit(site.get, "/metrics") for _ in range(400)]
            for number in range(50):
                site.families = [gauge(catalog.HOST_CPUS, number)]
                page = site.get("/metrics")[1]
                assert page.endswith(b"\njaxmon_host_cpus %d\n" % number)
        assert all(other.result()[0].status == 200 for other in others)

    def test_a_page_that_failed_is_not_kept(self, site: Site) -> None:
        """Each request tries again, and the first success is served."""
        site.families = [Family(catalog.HOST_CPUS, [("broken", "x")])]  # type: ignore[list-item]
        assert site.get("/metrics")[0].status == 500
        site.families = [gauge(catalog.HOST_CPUS, 1)]
        assert site.get("/metrics")[0].status == 200


class TestFloods:
    """Clients that ask without end."""

    def test_a_burst_is_served(self, site: Site) -> None:
        """Of twice as many clients as places none is refused: the later ones wait."""
        with site.connect() as first, ExitStack() as stack:
            first.sendall(head_of("/hold"))
            assert site.held.wait(90)
            clients = [stack.enter_context(site.connect()) for _ in range(120)]
            for client in clients:
                client.sendall(head_of("/metrics", "Connection: close"))
            site.release.set()
            assert [status(everything(client)) for client in clients] == [200] * 120
        assert site.server.dropped == 0

    def test_a_large_page_that_nobody_takes_is_held_once(self, site: Site) -> None:
        """Sixty clients that do not read 16 MB cost a piece of it each."""
        assert len(site.get("/big")[1]) == 16_000_000
        me = psutil.Process(os.getpid())
        before = me.memory_info().rss
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(site.connect()).sendall(head_of("/big"))
            until(lambda: len(unsent(site)) == 60, "all of them to be stuck")
            assert me.memory_info().rss - before < 32 << 20
            assert max(unsent(site)) <= 256 << 10

    def test_the_end_of_a_last_response_is_no_error(self, site: Site) -> None:
        """Wherever a response ends in the buffers, closing after it is no failure."""
        pages = [Response(b"x" * size) for size in range(100_000, 900_000, 20_000)]
        site.server.routes["/sized"] = lambda request: pages[int(request.query["n"])]
        for number, page in enumerate(pages):
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.settimeout(60)
                client.connect(("127.0.0.1", site.port))
                client.sendall(head_of(f"/sized?n={number}", "Connection: close"))
                assert everything(client).endswith(b"\r\n\r\n" + page.body)
        assert site.errors == []


def unsent(site: Site) -> list[int]:
    """Return what the kernel holds for each client that does not read, in bytes."""
    held = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, _, queues, *_ = line.split()
        if int(local.partition(":")[2], 16) == site.port:
            held.append(int(queues.partition(":")[0], 16))
    return [one for one in held if one]
