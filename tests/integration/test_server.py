"""The HTTP server over real sockets: what a well-behaved client sees."""

import gzip
import http.client
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, series
from jaxmon.host.http.server import Response, Server
from tests.helpers.servers import BIG, Site, everything, head_of, sites, status


@pytest.fixture
def make_site() -> Iterator[Callable[..., Site]]:
    with sites() as make:
        yield make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


class TestAnswers:
    """What a well-behaved client sees."""

    def test_a_handler_sees_the_request_and_its_response_arrives(self, site):
        """Path and query are decoded, header names are lower case."""
        response, body = site.get("/ech%6F?a=1&b=%20x&c", X_Name="value")

        assert (response.status, body) == (200, b"echo\n")
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert response.headers["X-Page"] == "echo"
        (request,) = site.requests
        assert (request.method, request.path) == ("GET", "/echo")
        assert request.query == {"a": "1", "b": " x", "c": ""}
        assert request.headers["x-name"] == "value"

    def test_head_tells_the_length_and_sends_no_body(self, site: Site) -> None:
        """HEAD is GET without the body."""
        response, body = site.get("/echo", "HEAD")

        assert (response.status, response.headers["Content-Length"]) == (200, "5")
        assert body == b""

    @pytest.mark.parametrize("version", ["1.0", "1.1"])
    @pytest.mark.parametrize("wish", ["keep-alive", "Keep-Alive, x", "close", ""])
    def test_a_connection_serves_one_request(
        self, site: Site, version: str, wish: str
    ) -> None:
        """The response ends the connection; further bytes do not reset it."""
        request = f"GET /echo HTTP/{version}\r\nHost: x\r\nConnection: {wish}\r\n\r\n"
        answer = site.raw(request.encode() * 3)

        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nConnection: close" in head
        assert body == b"echo\n"
        assert len(site.requests) == 1

    def test_what_follows_a_request_costs_nobody_the_response(self, site: Site) -> None:
        """A body is neither read as a request nor in the way of a large page."""
        with site.connect() as client:
            client.sendall(head_of("/big", "Content-Length: 4000000"))
            client.sendall(b"x" * 100_000)
            received = client.recv(1000)
            client.sendall(b"GET /echo HTTP/1.1\r\n" * 1000)
            received += everything(client)

        assert status(received) == 200
        assert received.endswith(b"\r\n\r\n" + BIG)
        assert site.requests == []

    def test_a_url_as_target_is_a_path(self, site: Site) -> None:
        """Clients of a proxy send whole URLs."""
        answer = site.raw(head_of("http://x:1/echo", "Connection: close"))

        assert status(answer) == 200

    def test_an_unknown_path_names_the_known_ones(self, site: Site) -> None:
        """A typing error costs no look into the documentation."""
        response, body = site.get("/metric")

        assert response.status == 404
        assert b"/metrics, /echo" in body

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
    def test_other_methods_are_not_allowed(self, site: Site, method: str) -> None:
        """Pages can only be read; the response says how."""
        response, _ = site.get("/echo", method)

        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")

    @pytest.mark.parametrize(
        "data",
        [
            b"\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET /echo\r\n\r\n",
            b"GET /echo HTTP/2.0\r\nHost: x\r\n\r\n",
            b"GET  /echo HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET echo HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /echo HTTP/1.1\r\n\r\n",
            b"GET /echo HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
            b"GET /echo HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n",
            b"GET /echo HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
            b"GET /echo HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
            b"GET /echo HTTP/1.1\r\nHost: x\r\nName : y\r\n\r\n",
            b"GET /echo?" + b"&".join([b"a=1"] * 99) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        ],
    )
    def test_what_is_not_a_request_is_refused(self, site: Site, data: bytes) -> None:
        """400, the end of the connection, and no handler runs."""
        assert status(site.raw(data)) == 400
        assert site.requests == []

    def test_large_headers_are_refused(self, site: Site) -> None:
        """16 KiB are plenty; the client learns why although it is still sending."""
        answer = site.raw(head_of("/echo", "X-Large: " + "x" * 8_000_000))

        assert status(answer) == 431


class TestMetrics:
    """The page that Prometheus scrapes."""

    def test_the_client_chooses_the_format(self, site: Site) -> None:
        """Text by default, OpenMetrics on request; caches are informed."""
        text, body = site.get("/metrics")
        strict, strict_body = site.get(
            "/metrics", Accept="application/openmetrics-text"
        )

        assert text.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert body.endswith(b"\njaxmon_host_cpus 2\n")
        assert strict.headers["Content-Type"].startswith("application/openmetrics-text")
        assert strict_body.endswith(b"\njaxmon_host_cpus 2\n# EOF\n")
        assert strict.headers["Vary"] == "Accept, Accept-Encoding"

    def test_only_large_pages_for_clients_who_can_are_compressed(
        self, site: Site
    ) -> None:
        """Compressed when accepted and worth it, and the content is the same."""
        small, _ = site.get("/metrics", Accept_Encoding="gzip")
        metric = catalog.JIT_CALLS
        samples = [(series(metric, f"f{number}"), 1.0) for number in range(200)]
        site.families = [Family(metric, samples)]
        plain, body = site.get("/metrics", Accept_Encoding="gzip;q=0, deflate")
        but_gzip, _ = site.get("/metrics", Accept_Encoding="*, gzip;q=0")
        packed, packed_body = site.get("/metrics", Accept_Encoding="deflate, gzip")
        anything, _ = site.get("/metrics", Accept_Encoding="*")

        assert small.headers["Content-Encoding"] is None
        assert plain.headers["Content-Encoding"] is None
        assert but_gzip.headers["Content-Encoding"] is None
        assert packed.headers["Content-Encoding"] == "gzip"
        assert anything.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(packed_body) == body
        assert len(packed_body) < len(body) / 5

    def test_each_page_is_timed(self, site: Site) -> None:
        """The duration of a scrape can be seen by the next."""
        for _ in range(3):
            site.get("/metrics")

        assert site.seconds.count == 3

    def test_prometheus_scrapes_it(self, site, prometheus):
        """A real Prometheus negotiates, scrapes, and stores the values."""
        server = prometheus({"site": [f"127.0.0.1:{site.port}"]})
        server.until_up()

        ((labels, value),) = server.until_query("jaxmon_host_cpus")
        assert (labels["job"], value) == ("site", 2)


class TestListening:
    """TCP and Unix sockets."""

    def test_ipv6_and_ipv4_at_once(self) -> None:
        """A server listens on several addresses; ``::`` takes both families."""
        server = Server({"/": lambda _: Response(b"here")})
        ports = [
            ("127.0.0.1", server.listen_tcp("localhost", 0)),
            ("127.0.0.1", dual := server.listen_tcp("::", 0)),
            ("::1", dual),
        ]
        server.start()
        try:
            for host, port in ports:
                client = http.client.HTTPConnection(host, port, timeout=60)
                with closing(client):
                    client.request("GET", "/")
                    assert client.getresponse().read() == b"here"
        finally:
            server.stop()

    def test_without_ipv6_all_addresses_are_those_of_ipv4(self, monkeypatch):
        """On a kernel without IPv6 ``::`` is taken for ``0.0.0.0``."""
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
        server = Server({"/": lambda _: Response(b"here")})
        port = server.listen_tcp("::", 0)
        server.start()
        try:
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with closing(client):
                client.request("GET", "/")
                assert client.getresponse().read() == b"here"
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(("::1", port), timeout=60)
        finally:
            server.stop()

    def test_a_busy_port_is_the_callers_to_handle(self, site: Site) -> None:
        """OSError, and nothing of the second server stays behind."""
        server = Server({})

        with pytest.raises(OSError, match="in use"):
            server.listen_tcp("127.0.0.1", site.port)

    def test_names_are_not_resolved(self) -> None:
        """DNS may hang; an address is asked for instead."""
        with pytest.raises(OSError, match=r"'example\.com' is not an IP address"):
            Server({}).listen_tcp("example.com", 0)

    @pytest.mark.parametrize("mode", [0o600, 0o660])
    def test_a_unix_socket_has_exactly_the_permissions_asked_for(self, run_dir, mode):
        """Whatever the umask; the file stays when the server stops."""
        path = run_dir / "s.sock"
        server = Server({"/": lambda _: Response(b"here")})
        server.listen_unix(path, mode)
        server.start()
        try:
            assert stat.S_IMODE(path.stat().st_mode) == mode
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(head_of("/", "Connection: close"))
                assert everything(client).endswith(b"\r\n\r\nhere")
        finally:
            server.stop()
        assert path.exists()

    def test_a_unix_socket_is_never_open_to_others(self, run_dir, monkeypatch):
        """Not even between bind and chmod, with a umask of zero."""
        seen: list[int] = []
        chmod = os.chmod

        def watched(path: str, mode: int) -> None:
            seen.append(stat.S_IMODE(Path(path).stat().st_mode))
            chmod(path, mode)

        monkeypatch.setattr(os, "chmod", watched)
        server = Server({})
        before = os.umask(0)
        try:
            server.listen_unix(run_dir / "s.sock")
        finally:
            os.umask(before)
            server.stop()

        assert seen == [0o600]

    @pytest.mark.parametrize("link", [os.link, os.symlink])
    def test_what_takes_the_place_of_a_new_socket_keeps_its_permissions(
        self, run_dir, monkeypatch, link
    ):
        """Others who may write in the directory put a link there after the bind."""
        victim, hidden = run_dir / "victim", run_dir / ".s.sock"
        victim.touch(0o400)
        open_file = os.open

        def opened(path: Any, *args: Any, **options: Any) -> int:
            if path == hidden:
                hidden.unlink()
                link(victim, hidden)
            return open_file(path, *args, **options)

        monkeypatch.setattr(os, "open", opened)
        server = Server({})
        server.listen_unix(run_dir / "s.sock", 0o660)
        server.stop()

        assert stat.S_IMODE(victim.stat().st_mode) == 0o400

    def test_an_existing_path_is_refused(self, run_dir: Path) -> None:
        """The server removes no foreign file."""
        path = run_dir / "s.sock"
        path.touch()

        with pytest.raises(OSError, match="in use"):
            Server({}).listen_unix(path)
