"""Requests to Grafana: how often, how long, and where the token goes."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from jaxmon_dashboards.grafana.session import ATTEMPTS, GrafanaError, GrafanaSession
from tests.fakes.http import FaultyServer, Reply
from tests.helpers.processes import free_port


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


def test_an_answer_as_it_is(server, session):
    """Statuses that are answers are returned, not raised."""
    server.fault("/x", reply=Reply(412, {"message": "no", "n": 1}))
    answer = session.request("GET", "/x", query={"a": "b c", "n": 1})
    assert (answer.status, answer.text("message"), answer.text("n")) == (412, "no", "")
    assert server.seen[0].line == "GET /x?a=b+c&n=1"


def test_waits_grow_and_end(server, session, waits):
    """Between four attempts there are three growing waits of at most two seconds."""
    server.fault("/x", reply=Reply(503, {}), times=99)
    with pytest.raises(GrafanaError, match="is busy: 503") as raised:
        session.request("GET", "/x")
    assert raised.value.status == 503
    assert len(server.seen) == ATTEMPTS == len(waits) + 1
    for wait, most in zip(waits, (0.5, 1.0, 2.0), strict=True):
        assert most / 2 <= wait <= most


@pytest.mark.parametrize("zone", ["GMT", "-0000"])
def test_retry_after_a_date(server, session, waits, zone):
    """A server may also name the time from which on it wants to be asked again."""
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    header = {"Retry-After": then.replace("GMT", zone)}
    server.fault("/x", reply=Reply(429, {}, header))
    assert session.request("GET", "/x").status == 200
    assert 15 < waits[0] <= 20


@pytest.mark.parametrize("value", ["7", " 7 "])
def test_retry_after_seconds(server, session, waits, value):
    """What the server asks for is waited, not what we would have chosen."""
    server.fault("/x", reply=Reply(429, {}, {"Retry-After": value}))
    session.request("GET", "/x")
    assert waits == [7.0]


@pytest.mark.parametrize("value", ["soon", "-5", "0", "1e99", ""])
def test_retry_after_nonsense(server, session, waits, value):
    """A header that cannot be used is as good as none."""
    server.fault("/x", reply=Reply(429, {}, {"Retry-After": value}))
    session.request("GET", "/x")
    assert 0 < waits[0] <= 0.5


def test_a_server_that_never_answers(server, waits):
    """Each attempt ends after the timeout, and the last one ends it all."""
    url = f"http://127.0.0.1:{server.port}"
    session = GrafanaSession(url, TOKEN, timeout=0.05, sleep=waits.append)
    server.fault("/x", stall=True, times=99)
    with pytest.raises(GrafanaError, match=f"no response from {url}: timed out"):
        session.request("GET", "/x")
    assert len(waits) == ATTEMPTS - 1


def test_nobody_listens(waits):
    """A refused connection is tried again, and then reported with its reason."""
    session = GrafanaSession(
        f"http://127.0.0.1:{free_port()}", TOKEN, sleep=waits.append
    )
    with pytest.raises(GrafanaError, match="Connection refused") as raised:
        session.request("GET", "/x")
    assert raised.value.status is None
    assert len(waits) == ATTEMPTS - 1


def test_an_answer_without_end_is_cut_off(server, session):
    """What is too long for a dashboard is not read into memory."""
    session.max_bytes = 1 << 20
    server.fault("/x", reply=Reply(200, "x" * (3 << 20)), times=9)
    with pytest.raises(GrafanaError, match="larger than 1 MiB"):
        session.request("GET", "/x")


def test_a_slow_answer_is_cut_off(server, session, monkeypatch):
    """An answer that drips is given up when time is over, however often it drips."""
    clock = iter(range(0, 10_000, 6))
    monkeypatch.setattr("jaxmon.host.http.stream.monotonic", lambda: next(clock))
    server.fault("/x", reply=Reply(200, "x" * (1 << 20)), times=9)
    with pytest.raises(GrafanaError, match="timed out"):
        session.request("GET", "/x")


def test_the_token_has_one_place(server, session):
    """It is in the Authorization header, and not in what represents the session."""
    headers = []

    def answer(_, value):
        headers.append(value)
        return Reply(200, {})

    server.answer = answer
    session.request("POST", "/x", body={"a": 1})
    assert headers == [f"Bearer {TOKEN}"]
    assert TOKEN not in repr(session)
    assert TOKEN not in f"{server.seen}"


def test_json_must_be_json(server, session):
    """A broken body with the right type is not Grafana's."""
    server.fault("/x", reply=Reply(200, "{"))
    with pytest.raises(GrafanaError, match="not JSON"):
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


@pytest.mark.parametrize("token", ["", "a\r\nX-Evil: 1", "a\tb", "é"])
def test_a_token_that_is_none(token):
    """It is refused, and not repeated: it might be nearly one."""
    with pytest.raises(GrafanaError, match="the token is empty or contains") as raised:
        GrafanaSession("https://example.com", token)
    assert not token or token not in str(raised.value)
