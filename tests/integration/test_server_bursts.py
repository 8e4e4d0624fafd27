"""The HTTP server when many connect at once: who has asked wins."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from jaxmon.host.http.server import Response
from tests.helpers.processes import until
from tests.helpers.servers import Site, everything, head_of, sites, status


@pytest.fixture
def make_site() -> Iterator[Callable[..., Site]]:
    with sites() as make:
        yield make


@pytest.mark.parametrize("said", [b"", b"GET /echo HT"], ids=["silent", "asking"])
@pytest.mark.parametrize("count", [2, 6, 50])
def test_who_has_asked_gets_a_place(
    make_site: Callable[..., Site], said: bytes, count: int
) -> None:
    """The first attempt is answered, whoever is connected."""
    site = make_site(clients=2, read=600)
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(site.connect()).sendall(said)
        assert site.is_alive()
    assert site.errors == []


def test_who_waits_in_silence_is_answered_when_it_asks(
    make_site: Callable[..., Site],
) -> None:
    """It is answered beside silent clients."""
    site = make_site(clients=2, read=600)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(site.connect())
        until(lambda: site.server.clients == 2, "two clients")
        client = stack.enter_context(site.connect())
        client.sendall(head_of("/echo", "Connection: close"))
        assert status(everything(client)) == 200


def test_who_says_nothing_is_not_waited_for(make_site: Callable[..., Site]) -> None:
    """Its time to send a request ends."""
    site = make_site(clients=1, read=0.3)
    with site.connect() as client:
        client.sendall(head_of("/later"))
        until(lambda: site.later, "the request")
        with site.connect() as silent:
            assert status(everything(silent)) == 408
        site.later[0].set_result(Response(b"at last"))
        assert status(client.recv(1000)) == 200


def test_who_has_not_asked_is_closed_at_the_end(make_site: Callable[..., Site]) -> None:
    """Stopping closes those who have said nothing, too."""
    site = make_site(clients=1)
    with ExitStack() as stack:
        clients = [stack.enter_context(site.connect()) for _ in range(3)]
        until(lambda: site.server.clients, "the first to be served")
        site.server.stop()
        for client in clients:
            # Who was not even accepted is told so by the system.
            with suppress(ConnectionResetError):
                assert everything(client) == b""
