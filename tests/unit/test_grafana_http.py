"""Requests to Grafana: how often, how long, and where the token goes."""

import pytest

from jaxmon_dashboards.grafana.session import ATTEMPTS, GrafanaError, GrafanaSession
from tests.fakes.http import FaultyServer, Reply


TOKEN = "glsa_thisIsTheTokenOfTheUnitTests"  # noqa: S105 - opens nothing


@pytest.fixture
def server():
    """Return a server that answers everything with an empty object."""
    with FaultyServer(lambda _, __: Reply(200, {})) as server:
        yield server


@pytest.fixture
def waits():
    """Return the seconds that `session` waited, which takes no time."""
    return []


@pytest.fixture
def session(server, waits):
    """Return a session with the server."""
    return GrafanaSession(f"http://127.0.0.1:{server.port}", TOKEN, sleep=waits.append)


def test_waits_grow_and_end(server, session, waits):
    """Between four attempts there are three growing waits of at most two seconds."""
    server.fault("/x", reply=Reply(503, {}), times=99)
    with pytest.raises(GrafanaError, match="is busy: 503") as raised:
        session.request("GET", "/x")
    assert raised.value.status == 503
    assert len(server.seen) == ATTEMPTS == len(waits) + 1
    for wait, most in zip(waits, (0.5, 1.0, 2.0), strict=True):
        assert most / 2 <= wait <= most


def test_a_server_that_never_answers(server, waits):
    """Each attempt ends after the timeout, and the last one ends it all."""
    url = f"http://127.0.0.1:{server.port}"
    session = GrafanaSession(url, TOKEN, timeout=0.05, sleep=waits.append)
    server.fault("/x", stall=True, times=99)
    with pytest.raises(GrafanaError, match=f"no response from {url}: timed out"):
        session.request("GET", "/x")
    assert len(waits) == ATTEMPTS - 1


def test_an_answer_without_end_is_cut_off(server, session):
    """What is too long for a dashboard is not read into memory."""
    session.max_bytes = 1 << 20
    server.fault("/x", reply=Reply(200, "x" * (3 << 20)), times=9)
    with pytest.raises(GrafanaError, match="larger than 1 MiB"):
        session.request("GET", "/x")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:3000",
        "http://127.0.0.1",
        "http://127.8.8.8:1/",
        "http://[::1]:3000/g/",
        "http://grafana.localhost",
        "https://10.0.0.1/grafana/",
    ],
)
def test_addresses_that_may_get_the_token(url):
    """Any https address, and http on this host."""
    assert GrafanaSession(url, TOKEN).place == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:3000",
        "http://localhost.example.com",
        "http://127.0.0.1.example.com",
        "http://[fe80::1]/",
        "http://0.0.0.0:3000",
    ],
)
def test_addresses_that_would_get_it_in_the_clear(url):
    """Plain http to another host has to be allowed."""
    with pytest.raises(GrafanaError, match=r"would be sent to .* unencrypted"):
        GrafanaSession(url, TOKEN)
    assert GrafanaSession(url, TOKEN, insecure_http=True).place == url.rstrip("/")
