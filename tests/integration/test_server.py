"""
The HTTP server over real sockets: what it answers, and what cannot stop it.
"""

from __future__ import annotations

import gzip
import http.client
import logging
import os
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, gauge, series
from jaxmon.exposition.histogram import Histogram
from jaxmon.exposition.server import Request, Response, Server, metrics_handler
from tests.support import Prometheus, require_program, run_python, until


BIG = b"x" * 16_000_000


class Site:
    """
    A server with some pages, and everything it reported.
    """

    def __init__(self, **options: float) -> None:
        self.requests: list[Request] = []
        self.errors: list[tuple[str, BaseException]] = []
        self.seconds = Histogram(catalog.SCRAPE_SECONDS)
        self.families: list[Family] = [gauge(catalog.HOST_CPUS, 2)]
        self.server = Server(
            {
                "/metrics": metrics_handler(lambda: self.families, self.seconds),
                "/echo": self._echo,
                "/big": lambda _: Response(BIG),
                "/broken": self._broken,
                "/invalid": lambda _: Response(b"", headers={"Name": "\u2028"}),
                "/exit": self._exit,
            },
            on_error=lambda where, error: self.errors.append((where, error)),
            **options,  # type: ignore[arg-type]
        )
        self.port = self.server.listen_tcp("127.0.0.1", 0)

    def connect(self) -> socket.socket:
        """
        Return a connection that has sent nothing.
        """
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def get(
        self, path: str, method: str = "GET", **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """
        Return response and body of one request on its own connection.
        """
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with closing(client):
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            client.request(method, path, headers=names)
            response = client.getresponse()
            return response, response.read()

    def raw(self, data: bytes) -> bytes:
        """
        Return everything that the server answers to *data* until it closes.
        """
        with self.connect() as client:
            client.sendall(data)
            return everything(client)

    def is_alive(self) -> bool:
        """
        Return whether a fresh client is served.
        """
        return self.get("/echo")[0].status == 200

    def _echo(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(b"echo\n", headers={"X-Page": "echo"})

    def _broken(self, _: Request) -> Response:
        msg = "a secret"
        raise LookupError(msg)

    def _exit(self, _: Request) -> Response:
        raise SystemExit


@pytest.fixture
def make_site() -> Iterator[Callable[..., Site]]:
    """
    Return a function that makes sites whose servers run until the test ends.
    """
    with ExitStack() as stack:

        def make(**options: float) -> Site:
            site = Site(**options)
            stack.callback(site.server.stop)
            site.server.start()
            return site

        yield make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    """
    Return a running site with the default limits.
    """
    return make_site()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """
    Return a self-signed certificate for 127.0.0.1, its key in the same file.
    """
    path = tmp_path / "cert.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {path} -out {path}.crt"
    )
    require_program("openssl")
    subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def everything(client: socket.socket) -> bytes:
    """
    Return what comes from *client* until the server closes the connection.
    """
    received = bytearray()
    while data := client.recv(65536):
        received += data
    return bytes(received)


def status(answer: bytes) -> int:
    """
    Return the status of a raw response.
    """
    return int(answer.split(b" ", 2)[1])


def head_of(path: str, *lines: str) -> bytes:
    """
    Return a raw GET request.
    """
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


class TestAnswers:
    """
    What a well-behaved client sees.
    """

    def test_a_handler_sees_the_request_and_its_response_arrives(
        self, site: Site
    ) -> None:
        """
        Path and query are decoded, header names are lower case.
        """
        response, body = site.get("/ech%6F?a=1&b=%20x&c", X_Name="value")

        assert (response.status, body) == (200, b"echo\n")
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert response.headers["X-Page"] == "echo"
        (request,) = site.requests
        assert (request.method, request.path) == ("GET", "/echo")
        assert request.query == {"a": "1", "b": " x", "c": ""}
        assert request.headers["x-name"] == "value"

    def test_head_tells_the_length_and_sends_no_body(self, site: Site) -> None:
        """
        HEAD is GET without the body.
        """
        response, body = site.get("/echo", "HEAD")

        assert (response.status, response.headers["Content-Length"]) == (200, "5")
        assert body == b""

    def test_a_connection_serves_many_requests(self, site: Site) -> None:
        """
        HTTP/1.1 keeps the connection, also when requests come in one packet.
        """
        with site.connect() as client:
            client.sendall(head_of("/echo") * 3 + head_of("/echo", "Connection: close"))
            answer = everything(client)

        assert answer.count(b"HTTP/1.1 200 OK") == 4
        assert answer.count(b"keep-alive") == 3

    def test_http_1_0_closes_unless_asked_to_keep(self, site: Site) -> None:
        """
        Old clients wait for the end of the connection.
        """
        keep = b"GET /echo HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
        answer = site.raw(keep + b"GET /echo HTTP/1.0\r\n\r\n")

        assert answer.count(b"HTTP/1.1 200 OK") == 2

    def test_a_url_as_target_is_a_path(self, site: Site) -> None:
        """
        Clients of a proxy send whole URLs.
        """
        answer = site.raw(head_of("http://x:1/echo", "Connection: close"))

        assert status(answer) == 200

    def test_an_unknown_path_names_the_known_ones(self, site: Site) -> None:
        """
        A typing error costs no look into the documentation.
        """
        response, body = site.get("/metric")

        assert response.status == 404
        assert b"/metrics, /echo" in body

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
    def test_other_methods_are_not_allowed(self, site: Site, method: str) -> None:
        """
        Pages can only be read; the response says how.
        """
        response, _ = site.get("/echo", method)

        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")

    @pytest.mark.parametrize(
        "field", ["Content-Length: 99", "Transfer-Encoding: chunked"]
    )
    def test_a_request_with_a_body_is_the_last_of_its_connection(
        self, site: Site, field: str
    ) -> None:
        """
        A body that nobody reads is never taken for a request.
        """
        answer = site.raw(head_of("/echo", field) + head_of("/echo"))

        assert answer.count(b"HTTP/1.1") == len(site.requests) == 1

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
            b"GET /echo HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
            b"GET /echo HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
            b"GET /echo HTTP/1.1\r\nHost: x\r\nName : y\r\n\r\n",
            b"GET /echo?" + b"&".join([b"a=1"] * 99) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        ],
    )
    def test_what_is_not_a_request_is_refused(self, site: Site, data: bytes) -> None:
        """
        400, the end of the connection, and no handler runs.
        """
        assert status(site.raw(data)) == 400
        assert site.requests == []

    def test_large_headers_are_refused(self, site: Site) -> None:
        """
        16 KiB are plenty; the client learns why although it is still sending.
        """
        answer = site.raw(head_of("/echo", "X-Large: " + "x" * 8_000_000))

        assert status(answer) == 431


class TestMetrics:
    """
    The page that Prometheus scrapes.
    """

    def test_the_client_chooses_the_format(self, site: Site) -> None:
        """
        Text by default, OpenMetrics when asked for; caches are told.
        """
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
        """
        Compressed when that is accepted and worth it, and the content is the same.
        """
        small, _ = site.get("/metrics", Accept_Encoding="gzip")
        metric = catalog.JIT_CALLS
        samples = [(series(metric, f"f{number}"), 1.0) for number in range(200)]
        site.families = [Family(metric, samples)]
        plain, body = site.get("/metrics", Accept_Encoding="gzip;q=0, deflate")
        packed, packed_body = site.get("/metrics", Accept_Encoding="deflate, gzip")

        assert small.headers["Content-Encoding"] is None
        assert plain.headers["Content-Encoding"] is None
        assert packed.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(packed_body) == body
        assert len(packed_body) < len(body) / 5

    def test_each_page_is_timed(self, site: Site) -> None:
        """
        The duration of a scrape can be seen by the next.
        """
        for _ in range(3):
            site.get("/metrics")

        assert site.seconds.count == 3

    def test_prometheus_scrapes_it(
        self, site: Site, prometheus: Callable[..., Prometheus]
    ) -> None:
        """
        A real Prometheus negotiates, keeps its connection and stores the values.
        """
        server = prometheus({"site": [f"127.0.0.1:{site.port}"]})
        server.until_up()

        ((labels, value),) = server.until_query("jaxmon_host_cpus")
        assert (labels["job"], value) == ("site", 2)


class TestListening:
    """
    TCP and Unix sockets.
    """

    def test_ipv6_and_ipv4_at_once(self) -> None:
        """
        A server listens on several addresses; ``::`` takes both families.
        """
        server = Server({"/": lambda _: Response(b"here")})
        ports = [
            ("127.0.0.1", server.listen_tcp("localhost", 0)),
            ("127.0.0.1", dual := server.listen_tcp("::", 0)),
            ("::1", dual),
        ]
        server.start()
        try:
            for host, port in ports:
                client = http.client.HTTPConnection(host, port, timeout=20)
                with closing(client):
                    client.request("GET", "/")
                    assert client.getresponse().read() == b"here"
        finally:
            server.stop()

    def test_a_busy_port_is_the_callers_to_handle(self, site: Site) -> None:
        """
        OSError, and nothing of the second server stays behind.
        """
        server = Server({})

        with pytest.raises(OSError, match="in use"):
            server.listen_tcp("127.0.0.1", site.port)

    def test_names_are_not_resolved(self) -> None:
        """
        DNS may hang; an address is asked for instead.
        """
        with pytest.raises(OSError, match=r"'example\.com': not an IP address"):
            Server({}).listen_tcp("example.com", 0)

    @pytest.mark.parametrize("mode", [0o600, 0o660])
    def test_a_unix_socket_has_exactly_the_permissions_asked_for(
        self, run_dir: Path, mode: int
    ) -> None:
        """
        Whatever the umask; the file stays when the server stops.
        """
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

    def test_a_unix_socket_is_never_open_to_others(
        self, run_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Not even between bind and chmod, with a umask of zero.
        """
        seen: list[int] = []
        chmod = Path.chmod

        def watched(path: Path, mode: int) -> None:
            seen.append(stat.S_IMODE(path.stat().st_mode))
            chmod(path, mode)

        monkeypatch.setattr(Path, "chmod", watched)
        server = Server({})
        before = os.umask(0)
        try:
            server.listen_unix(run_dir / "s.sock")
        finally:
            os.umask(before)
            server.stop()

        assert seen == [0o600]

    def test_an_existing_path_is_refused(self, run_dir: Path) -> None:
        """
        The server takes no file away from anybody.
        """
        path = run_dir / "s.sock"
        path.touch()

        with pytest.raises(OSError, match="in use"):
            Server({}).listen_unix(path)


class TestBadClients:
    """
    A slow, idle, greedy or vanished client never blocks another.
    """

    def test_idle_and_trickling_clients_block_nobody(self, site: Site) -> None:
        """
        50 clients in every unfinished state, and a scrape still answers.
        """
        with ExitStack() as stack:
            for number in range(50):
                client = stack.enter_context(site.connect())
                client.sendall([b"", b"G", b"GET /big HTTP/1.1\r\nHost"][number % 3])

            assert site.is_alive()

    def test_a_trickling_client_is_cut_off(
        self, make_site: Callable[..., Site]
    ) -> None:
        """
        The timeout is for the whole head: single bytes do not extend it.
        """
        site = make_site(read_timeout=0.3)
        with site.connect() as client:
            client.settimeout(0.05)
            answer = b""
            for byte in head_of("/echo", "X: " + "x" * 10_000):
                client.send(bytes([byte]))
                try:
                    answer = client.recv(1000)
                    break
                except TimeoutError:
                    continue

        assert status(answer) == 408

    def test_an_unused_connection_is_closed(
        self, make_site: Callable[..., Site]
    ) -> None:
        """
        After its last response a connection stays for the idle timeout only.
        """
        site = make_site(idle_timeout=0.2)

        answer = site.raw(head_of("/echo"))

        assert answer.count(b"HTTP/1.1") == 1

    def test_a_client_that_does_not_read_is_cut_off(
        self, make_site: Callable[..., Site]
    ) -> None:
        """
        Its page is dropped after the write timeout; meanwhile others are served.
        """
        site = make_site(write_timeout=0.3)
        with site.connect() as client:
            client.sendall(head_of("/big"))
            assert site.is_alive()
            until(lambda: not site.server._connections, "the server to give up")
            assert len(everything(client)) < len(BIG)

    def test_a_large_page_arrives_whole(self, site: Site) -> None:
        """
        A client that does read gets everything.
        """
        assert site.get("/big")[1] == BIG

    def test_vanished_clients_leave_nothing(self, site: Site) -> None:
        """
        Resets in the middle of a request or of a response are no errors.
        """
        for data in (b"", b"GET", head_of("/big")):
            with site.connect() as client:
                linger = b"\1\0\0\0\0\0\0\0"
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.sendall(data)

        assert site.is_alive()
        until(lambda: not site.server._connections, "connections to be closed")
        assert site.errors == []

    def test_too_many_clients_are_refused_and_counted(
        self, make_site: Callable[..., Site]
    ) -> None:
        """
        503 while all places are taken, service again when one is free.
        """
        site = make_site(max_connections=2)
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(site.connect())

            assert site.get("/echo")[0].status == 503
            assert site.server.dropped == 1
        until(site.is_alive, "a free place")

    def test_far_too_many_clients_are_bounded(
        self, make_site: Callable[..., Site]
    ) -> None:
        """
        Beyond twice the limit, connections are closed without a word.
        """
        site = make_site(max_connections=2)
        with ExitStack() as stack:
            clients = [stack.enter_context(site.connect()) for _ in range(20)]
            until(lambda: site.server.dropped == 18, "refusals")

            assert len(site.server._connections) <= 4
            assert everything(clients[-1]) == b""

    def test_the_longest_idle_connection_gives_way(
        self, make_site: Callable[..., Site]
    ) -> None:
        """
        Connections that merely wait for their next request keep nobody out.
        """
        site = make_site(max_connections=2)
        with site.connect() as first, site.connect() as second:
            for client in (first, second):
                client.sendall(head_of("/echo"))
                assert status(client.recv(1000)) == 200
            with site.connect() as third:
                third.sendall(head_of("/echo"))
                assert status(third.recv(1000)) == 200
                assert everything(first) == b""
                second.sendall(head_of("/echo"))
                assert status(second.recv(1000)) == 200
        assert site.server.dropped == 0


class TestFailures:
    """
    Handlers that fail, and the process around the server.
    """

    @pytest.mark.parametrize("path", ["/broken", "/exit"])
    def test_a_failing_handler_costs_one_response(self, site: Site, path: str) -> None:
        """
        500 without details for the client, the error for `on_error`; life goes on.
        """
        response, body = site.get(path)

        assert response.status == 500
        assert b"secret" not in body
        assert [where for where, _ in site.errors] == [f"server:{path}"]
        assert site.is_alive()

    def test_an_impossible_response_costs_one_connection(self, site: Site) -> None:
        """
        A header that cannot be sent is reported and the server lives.
        """
        assert site.raw(head_of("/invalid")) == b""
        until(lambda: site.errors, "a report")
        assert [where for where, _ in site.errors] == ["server"]
        assert site.is_alive()

    def test_an_error_reporter_that_fails_is_ignored(self) -> None:
        """
        Nothing that happens while reporting reaches the server.
        """

        def break_down(_: Request) -> Response:
            raise ValueError

        def fail(_where: str, error: BaseException) -> None:
            raise error

        server = Server({"/": break_down}, on_error=fail)
        port = server.listen_tcp("127.0.0.1", 0)
        server.start()
        try:
            for _ in range(2):
                client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                with closing(client):
                    client.request("GET", "/")
                    assert client.getresponse().status == 500
        finally:
            server.stop()

    def test_running_out_of_descriptors_is_survived(self) -> None:
        """
        accept() fails until a descriptor is free, then clients are served.
        """
        result = run_python("-W", "error", "-c", DESCRIPTORS).ok()

        assert result.out.splitlines() == ["True", "200"]
        assert result.err == ""

    def test_nothing_is_logged(
        self, make_site: Callable[..., Site], caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        Neither the root logger nor asyncio's speaks in the user's process.
        """
        caplog.set_level(logging.DEBUG)
        with caplog.at_level(logging.DEBUG, logger="asyncio"):
            site = make_site(read_timeout=0.1)
            site.get("/broken")
            site.raw(b"GET")
            site.server.stop()

        assert caplog.records == []
        assert logging.getLogger("asyncio").filters == []


DESCRIPTORS = """
import os, resource, socket, threading
from jaxmon.exposition.server import Response, Server

failed = threading.Event()
server = Server({"/": lambda _: Response(b"")}, on_error=lambda *_: failed.set())
port = server.listen_tcp("127.0.0.1", 0)
server.start()
client = socket.socket()
client.settimeout(30)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
client.connect(("127.0.0.1", port))
print(failed.wait(30))
for fd in taken:
    os.close(fd)
client.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
print(client.recv(100).split()[1].decode())
client.close()
server.stop()
"""


class TestLife:
    """
    Start, stop, exit and fork.
    """

    def test_stop_ends_everything_and_twice_is_harmless(
        self, make_site: Callable[..., Site]
    ) -> None:
        """
        Thread and sockets are gone, also those of clients in every state.
        """
        site = make_site()
        with ExitStack() as stack:
            clients = [stack.enter_context(site.connect()) for _ in range(4)]
            clients[1].sendall(b"GET /")
            clients[2].sendall(head_of("/echo"))
            clients[3].sendall(head_of("/big"))
            until(lambda: len(site.server._connections) == 4, "connections")

            site.server.stop()
            site.server.stop()

            assert clients[0].recv(10) == clients[1].recv(10) == b""
            assert "jaxmon-server" not in {one.name for one in threading.enumerate()}
            with pytest.raises(ConnectionRefusedError):
                site.connect()

    def test_a_response_under_way_is_finished(
        self, make_site: Callable[..., Site]
    ) -> None:
        """
        stop() grants a reading client a moment for the rest of its page.
        """
        site = make_site()
        with site.connect() as client:
            client.sendall(head_of("/big"))
            received = client.recv(65536)
            stopping = threading.Thread(target=site.server.stop)
            stopping.start()
            received += everything(client)
            stopping.join()

        assert received.endswith(b"\r\n\r\n" + BIG)

    def test_a_handler_may_stop_the_server(self) -> None:
        """
        The server thread does not wait for itself.
        """

        def stop(_: Request) -> Response:
            server.stop()
            return Response(b"last")

        server = Server({"/": stop})
        port = server.listen_tcp("127.0.0.1", 0)
        server.start()
        (thread,) = [
            one for one in threading.enumerate() if one.name == "jaxmon-server"
        ]
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(head_of("/"))
            assert everything(client).endswith(b"last")
        thread.join(20)
        assert not thread.is_alive()

    def test_a_server_runs_once(self, site: Site) -> None:
        """
        Neither a second start nor a late listener is accepted.
        """
        with pytest.raises(RuntimeError, match="make a new one"):
            site.server.start()
        with pytest.raises(RuntimeError, match="before start"):
            site.server.listen_tcp("127.0.0.1", 0)

    @pytest.mark.parametrize("ending", ["", "server.stop()", "raise SystemExit(0)"])
    def test_a_process_ends_as_if_there_were_no_server(self, ending: str) -> None:
        """
        With or without stop(), at once, in silence, without a warning.
        """
        result = run_python("-X", "dev", "-W", "error", "-c", EXIT + ending).ok()

        assert (result.out, result.err) == ("200\n", "")

    def test_a_forked_child_can_let_go(self) -> None:
        """
        The child closes every descriptor that it inherited; the parent serves on.
        """
        result = run_python("-W", "error", "-c", FORK).ok()

        assert result.out.splitlines() == ["child closed all", "kept 200", "new 200"]
        assert result.err == ""

    def test_families_are_light(self) -> None:
        """
        Whoever only makes families loads no event loop, HTTP or TLS.
        """
        source = (
            "import sys, jaxmon.exposition.families, jaxmon.exposition.histogram\n"
            "print(sorted({'asyncio', 'http', 'ssl', 'socket'} & set(sys.modules)))"
        )

        assert run_python("-c", source).ok().out == "[]\n"


EXIT = """
import socket, urllib.request
from jaxmon.exposition.server import Response, Server
server = Server({"/": lambda _: Response(b"")})
port = server.listen_tcp("127.0.0.1", 0)
server.start()
with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as response:
    print(response.status)
idle = socket.create_connection(("127.0.0.1", port))
idle.send(b"GET")
idle.close()
"""

FORK = """
import gc, http.client, os, sys
from jaxmon.exposition.server import Response, Server

def sockets():
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    return [name for name in names if "socket" in name or "eventpoll" in name]

server = Server({"/": lambda _: Response(b"")})
port = server.listen_tcp("127.0.0.1", 0)
server.start()
kept = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
kept.request("GET", "/")
kept.getresponse().read()
ours = len(sockets())
pid = os.fork()
if pid == 0:
    kept.close()
    server.abandon()
    server.abandon()
    server.stop()
    del server
    gc.collect()
    print("child closed all" if not sockets() else sockets(), flush=True)
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
new = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
for name, client in ("kept", kept), ("new", new):
    client.request("GET", "/")
    print(name, client.getresponse().status)
    client.close()
server.stop()
"""


class TestTls:
    """
    HTTPS by one argument.
    """

    @pytest.fixture
    def secure(self, certificate: Path) -> Iterator[int]:
        """
        Return the port of a TLS server with a short handshake timeout.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.errors: list[tuple[str, BaseException]] = []
        server = Server(
            {"/": lambda _: Response(b"secret"), "/big": lambda _: Response(BIG)},
            on_error=lambda *error: self.errors.append(error),
        )
        port = server.listen_tcp("127.0.0.1", 0, ssl=context, ssl_handshake_timeout=0.5)
        server.start()
        yield port
        server.stop()

    def test_idle_tcp_clients_do_not_block_a_scrape(
        self, secure: int, certificate: Path
    ) -> None:
        """
        Handshakes run beside each other, each with its timeout.
        """
        trust = ssl.create_default_context(cafile=certificate)
        address = ("127.0.0.1", secure)
        with ExitStack() as stack:
            idle = [
                stack.enter_context(socket.create_connection(address, timeout=20))
                for _ in range(20)
            ]
            client = http.client.HTTPSConnection(*address, timeout=20, context=trust)
            with closing(client):
                for path, body in (("/", b"secret"), ("/big", BIG), ("/", b"secret")):
                    client.request("GET", path)
                    assert client.getresponse().read() == body
            assert [everything(one) for one in idle] == [b""] * 20
        assert self.errors == []

    def test_a_client_without_tls_is_turned_away(self, secure: int) -> None:
        """
        Plain HTTP on a TLS port ends that connection and is no error of ours.
        """
        with socket.create_connection(("127.0.0.1", secure), timeout=20) as client:
            client.sendall(head_of("/"))
            assert b"200" not in everything(client)
        assert self.errors == []
