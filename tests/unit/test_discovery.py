"""Where the sidecars of a job are."""

import socket
from typing import Any

from jaxmon.cli.sidecars import ScrapeTarget, expanded, from_groups, parsed
from jaxmon.host.http.server import Response, Server
from jaxmon.host.http.session import Session


def resolve(host: str, port: int, **_: Any) -> list[Any]:
    """Return several addresses of a service, one of a host, none of others."""
    known = {
        "ranks.svc": ["10.0.0.1", "10.0.0.2", "10.0.0.1", "fd00::1"],
        "host": ["10.0.0.7", "fd00::7"],
        "six.svc": ["fd00::1", "fd00::2"],
    }
    if host not in known:
        raise socket.gaierror(-2, "Name or service not known")
    return [
        (
            socket.AF_INET6 if ":" in one else socket.AF_INET,
            socket.SOCK_STREAM,
            6,
            "",
            (one, port),
        )
        for one in known[host]
    ]


def test_every_address_of_a_name_is_a_target() -> None:
    """One of each host: a host has an address of each kind, and is asked once."""
    wanted = [
        ScrapeTarget("http", name, 9467)
        for name in ("ranks.svc", "host", "six.svc", "nowhere", "host")
    ]
    assert [(one.host, one.address) for one in expanded(wanted, resolve)] == [
        ("ranks.svc", "10.0.0.1"),
        ("ranks.svc", "10.0.0.2"),
        ("host", ""),
        ("six.svc", "fd00::1"),
        ("six.svc", "fd00::2"),
        ("nowhere", ""),
    ]


def test_an_address_is_connected_to_under_the_name() -> None:
    """The server sees the name, as its certificate has it."""
    hosts = []

    def respond(request: Any) -> Response:
        hosts.append(request.headers["host"])
        return Response(b"{}", "application/json")

    server = Server({"/job": respond})
    port = server.listen_tcp("127.0.0.1", 0)
    server.start()
    try:
        url = f"http://ranks.svc:{port}"
        Session("sidecar", url, address="127.0.0.1").get("/job")
    finally:
        server.stop()
    assert hosts == [f"ranks.svc:{port}"]


def test_groups_say_how_to_connect() -> None:
    """As in Prometheus, a label says so; a port or scheme of its own wins."""
    groups = [
        {"targets": ["a", "b:1"], "labels": {"__scheme__": "https"}},
        {"targets": ["http://c:2/", "[::1]:3"]},
    ]
    assert list(from_groups(groups, "here", scheme="http")) == [
        ScrapeTarget("https", "a", 9467),
        ScrapeTarget("https", "b", 1),
        ScrapeTarget("http", "c", 2),
        ScrapeTarget("http", "[::1]", 3),
    ]
    assert parsed("a:1", scheme="http").name == "a:1"
