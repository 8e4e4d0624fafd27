"""By which names the HTTP server may be asked, so that other sites read nothing."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from jaxmon.host.http.routes import HostPolicy
from jaxmon.host.http.server import Request, Response, Server
from tests.helpers.servers import CLIENTS, TLS, GuardedSite, everything, status


CHROME = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Chrome/140"
LANGUAGE = "Accept-Language:"
PROMETHEUS = (
    "User-Agent: Prometheus/3.5.0",
    "Accept-Encoding: gzip",
    "X-Prometheus-Scrape-Timeout-Seconds: 10",
)

Ask = Callable[..., int]


@pytest.fixture
def serve() -> Iterator[Callable[..., Ask]]:
    with ExitStack() as stack:

        def start(*allowed: str, address: str = "127.0.0.1") -> Ask:
            server = Server(
                {"/metrics": lambda _: Response(b"secret")}, hosts=HostPolicy(allowed)
            )
            port = server.listen_tcp("::", 0)
            server.start()
            stack.callback(server.stop)

            def ask(host: str, *lines: str) -> int:
                head = ["GET /metrics HTTP/1.1", f"Host: {host}", *lines]
                head += ["Connection: close", "", ""]
                with closing(socket.create_connection((address, port), 20)) as client:
                    client.sendall("\r\n".join(head).encode())
                    answer = everything(client)
                assert (b"secret" in answer) == (status(answer) == 200)
                return status(answer)

            return ask

        yield start


@pytest.fixture
def remote() -> str:
    """Return an address of this machine other than loopback."""
    for found in psutil.net_if_addrs().values():
        for one in found:
            if one.family == socket.AF_INET and not one.address.startswith("127."):
                return one.address
    pytest.skip("this machine has no address but loopback")


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1:9467", "10.1.2.3:80", "[::1]:9467", "[fe80::1%25lo]"),
        *("localhost", "LOCALHOST:9467", "localhost.", "app.localhost", "127.1", ""),
        *("exporter", "jaxmon:9467", "jaxmon.monitoring.svc", "gpu-7.local"),
        *("jaxmon.monitoring.svc.cluster.local:9467", "host.docker.internal"),
        os.uname().nodename,
    ],
)
@pytest.mark.parametrize("lines", [PROMETHEUS, (CHROME, LANGUAGE)])
def test_own_names_are_answered(serve, host, lines):
    """Addresses, local names and this machine's name: from any client."""
    assert serve()(host, *lines) == 200


@pytest.mark.parametrize(
    "host",
    [
        *("attacker.example", "attacker.example:9467", "ATTACKER.example.", "a.b.c"),
        *("127.0.0.1.attacker.example", "localhost.attacker.example", "x.local.com"),
        *("attacker.example:80:80", "user@attacker.example", "127.0.0.1@a.example"),
        *("notlocal.xlocal", ".example", "xn--bcher-kva.example", "b\xe4d.example"),
    ],
)
def test_a_foreign_name_reads_nothing_over_loopback(serve, host):
    """Whatever else the request says, and on whichever address the server listens."""
    ask = serve()
    for lines in (PROMETHEUS, (CHROME, LANGUAGE), ()):
        assert ask(host, *lines) == 403


def test_a_scrape_from_elsewhere_may_use_any_name(serve, remote):
    """A site's DNS names are not known here; a browser is refused by a foreign one."""
    ask = serve(address=remote)
    assert ask("gpu-7.prod.example.com:9467", *PROMETHEUS) == 200
    assert ask("gpu-7.prod.example.com:9467") == 200
    for line in (
        *(CHROME, LANGUAGE, "Origin: http://attacker.example", "Cookie: a=b"),
        *("Referer: http://attacker.example/", "Sec-Fetch-Site: same-origin"),
    ):
        assert ask("attacker.example", line) == 403
        assert ask(remote, line) == 200


def test_names_can_be_allowed(serve: Callable[..., Ask]) -> None:
    """One, all beneath a domain, or any."""
    ask = serve("GPU-7.example.com.", "*.corp.example")
    assert ask("gpu-7.example.com:9467", LANGUAGE) == 200
    assert ask("a.b.corp.example", LANGUAGE) == 200
    for host in ("x.gpu-7.example.com", "corp.example.com", "xcorp.example"):
        assert ask(host, LANGUAGE) == 403
    assert serve("*")("attacker.example", LANGUAGE) == 200


@pytest.mark.parametrize(
    "name", ["", "a b", "http://a.example", "a.example:80", "*x", "*.", "a..", "."]
)
def test_what_is_no_name_is_refused(name: str) -> None:
    """It would never match, although the user relies on it."""
    with pytest.raises(
        ValueError, match=r"is not a valid host name; use one such as gpu-7"
    ):
        HostPolicy([name])


def test_a_request_without_the_header_is_no_browsers(serve: Callable[..., Ask]) -> None:
    """HTTP/1.0 has none; all browsers send it."""
    server = Server({"/metrics": lambda _: Response(b"secret")})
    port = server.listen_tcp("127.0.0.1", 0)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert status(everything(client)) == 200
    finally:
        server.stop()


def test_a_unix_socket_asks_for_no_name(tmp_path: Path) -> None:
    """No browser reaches it."""
    server = Server({"/metrics": lambda _: Response(b"secret")})
    server.listen_unix(tmp_path / "s")
    server.start()
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))
            client.sendall(
                b"GET /metrics HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
            )
            assert status(everything(client)) == 200
    finally:
        server.stop()


def test_clients_of_this_host_are_trusted(remote: str, tmp_path: Path) -> None:
    """Over loopback and a Unix socket, but not over an address that others reach."""
    seen: list[bool] = []

    def page(request: Request) -> Response:
        seen.append(request.trusted)
        return Response(b"")

    server = Server({"/": page})
    port = server.listen_tcp("::", 0)
    server.listen_unix(tmp_path / "s")
    server.start()
    try:
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", port)),
            (socket.AF_UNIX, str(tmp_path / "s")),
            (socket.AF_INET, (remote, port)),
        ):
            with socket.socket(family) as client:
                client.settimeout(60)
                client.connect(address)
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                assert status(everything(client)) == 200
    finally:
        server.stop()
    assert seen == [True, True, False]


def test_passwords_and_certificates_authenticate(tmp_path: Path) -> None:
    """TLS alone does not, nor a certificate that a client may omit."""
    bcrypt = pytest.importorskip("bcrypt")
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    optional = f"{CLIENTS}  client_auth_type: VerifyClientCertIfGiven\n"
    with ExitStack() as stack:
        site = GuardedSite(tmp_path, stack)
        site.certify()
        site.authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        found = []
        for config in (f"basic_auth_users: {{a: {hashed}}}\n", CLIENTS, TLS, optional):
            site.serve(config)
            found.append(site.gate.authenticates)
    assert found == [True, True, False, False]


def test_passwords_and_tls_guard_by_themselves(tmp_path: Path) -> None:
    """A configuration with headers alone does not guard."""
    bcrypt = pytest.importorskip("bcrypt")
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    foreign: dict[str, Any] = {"Host": "attacker.example"}
    with ExitStack() as stack:
        site = GuardedSite(tmp_path, stack)
        site.serve(f"basic_auth_users: {{alice: {hashed}}}\n")
        assert site.get(**foreign)[0] == 401
        assert site.get(user=("alice", "right"), **foreign)[0] == 200
        site.certify()
        site.serve("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")
        assert site.get(context=site.trust(), **foreign)[0] == 200
        site.serve("http_server_config: {headers: {X-Frame-Options: deny}}\n")
        assert site.get(**foreign)[0] == 403
