"""The way to a server: what is sent to it, what to a proxy, and what is kept secret."""

from base64 import b64encode
from urllib.parse import urlsplit

import pytest

from jaxmon.host.http.client import Route, UnreachableError
from jaxmon.host.http.stream import Bounds
from jaxmon.host.http.urls import parts_of
from tests.fakes.http import FaultyServer, Reply
from tests.fakes.proxy import Proxy
from tests.helpers.processes import free_port


def basic(user: str) -> str:
    """Return what a header has for *user*, which is a name and a password."""
    return f"Basic {b64encode(user.encode()).decode()}"


def headers_of(head: str) -> dict[str, str]:
    """Return the headers of a request."""
    return dict(line.strip().split(": ", 1) for line in head.splitlines()[1:])


def bounds() -> Bounds:
    """Return time and room enough."""
    return Bounds(60.0, 1 << 20)


@pytest.mark.parametrize(
    ("user", "sent"),
    [("", None), ("me@", basic("me:")), ("me:p%40ss@", basic("me:p@ss"))],
)
def test_a_server_is_sent_who_its_address_names(user: str, sent: str | None) -> None:
    """In one header; the host in another has neither user nor password."""
    with FaultyServer(lambda *_: Reply(200, {})) as server, Proxy(server.port) as seen:
        host = seen.url.removeprefix("http://")
        route = Route(parts_of(f"http://{user}{host}/"))
        answer = route.exchange("GET", f"{seen.url}/x", bounds(), headers={"X-A": "b"})
    assert answer.status == 200
    headers = headers_of(seen.heads[0])
    assert headers.get("Authorization") == sent
    assert (headers["Host"], headers["X-A"]) == (host, "b")


@pytest.mark.parametrize(
    ("user", "sent"), [("me@", basic("me:")), ("me:p%40ss@", basic("me:p@ss"))]
)
def test_a_proxy_is_sent_who_its_address_names(user: str, sent: str) -> None:
    """And asked for the server's address without the user of that."""
    with FaultyServer(lambda *_: Reply(200, {})) as server, Proxy(server.port) as proxy:
        address = proxy.url.replace("//", f"//{user}")
        route = Route(parts_of("http://you:word@far.test:81/"), urlsplit(address))
        answer = route.exchange("GET", "/x", bounds(), headers={})
    assert answer.status == 200
    assert proxy.heads[0].startswith("GET http://far.test:81/x HTTP/1.1\r\n")
    headers = headers_of(proxy.heads[0])
    assert headers["Proxy-Authorization"] == sent
    assert headers["Authorization"] == basic("you:word")
    assert headers["Host"] == "far.test:81"


def test_a_tunnel_is_opened_without_the_servers_password() -> None:
    """The proxy is told where to connect to, and its own user alone."""
    with Proxy(0, refuse="403 Forbidden") as proxy:
        address = proxy.url.replace("//", "//me:secret@")
        route = Route(parts_of("https://you:word@[::1]/"), urlsplit(address))
        with pytest.raises(OSError, match="Tunnel connection failed: 403 Forbidden"):
            route.exchange("GET", "/x", bounds(), headers={})
    [head] = proxy.heads
    assert head.startswith("CONNECT [::1]:443 HTTP/1.1\r\n")
    headers = headers_of(head)
    assert headers["Proxy-Authorization"] == basic("me:secret")
    assert headers["Host"] == "[::1]:443"
    assert "Authorization" not in headers


def test_secrets_of_a_route_are_those_of_both_addresses() -> None:
    """As they are and as they are sent."""
    server, proxy = parts_of("https://you:word@h/"), parts_of("http://me:p%40ss@p/")
    assert Route(server, proxy).secrets == (
        *("word", basic("you:word").removeprefix("Basic ")),
        *("p@ss", basic("me:p@ss").removeprefix("Basic ")),
    )
    assert Route(parts_of("http://h/")).secrets == ()


def test_where_nothing_listens_is_told_from_what_breaks_later() -> None:
    """The reason is that of the system."""
    route = Route(parts_of(f"http://127.0.0.1:{free_port()}/"))
    with pytest.raises(UnreachableError, match="Connection refused"):
        route.exchange("GET", "/", bounds(), headers={})
