"""The HTTP server among clients that are slow, greedy, gone or hostile."""

import http.client
import select
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from time import monotonic

import pytest

from jaxmon.host.http.connections import ServerLimits
from jaxmon.host.http.server import Response, Server
from jaxmon_exporter.gate import AccessGate
from tests.helpers.processes import require_program, until
from tests.helpers.servers import BIG, TLS, Site, everything, head_of, sites, status


@pytest.fixture
def make_site() -> Iterator[Callable[..., Site]]:
    with sites() as make:
        yield make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


class TestBadClients:
    """A slow, idle, greedy or vanished client never blocks another."""

    def test_idle_and_trickling_clients_block_nobody(self, site: Site) -> None:
        """50 clients in every unfinished state, and a scrape still answers."""
        with ExitStack() as stack:
            for number in range(50):
                client = stack.enter_context(site.connect())
                client.sendall([b"", b"G", b"GET /big HTTP/1.1\r\nHost"][number % 3])

            assert site.is_alive()

    def test_a_trickling_client_is_cut_off(self, make_site):
        """The timeout is for the whole head: single bytes do not extend it."""
        site = make_site(read=0.3)
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

    def test_a_slow_handler_costs_nobody_the_time_to_ask(self, make_site):
        """What was sent in time is answered, however late the server reads it."""
        site = make_site(read=5)
        with site.connect() as first, site.connect() as second:
            until(lambda: site.server.clients == 2, "two clients")
            over = monotonic() + 5
            first.sendall(head_of("/hold"))
            assert site.held.wait(90)
            second.sendall(head_of("/echo"))
            until(lambda: monotonic() > over, "the time to ask to be over")
            site.release.set()
            assert status(everything(second)) == 200

    def test_a_client_that_does_not_read_is_cut_off(self, make_site):
        """Its page is dropped after the write timeout; meanwhile others are served."""
        site = make_site(write=0.3)
        with site.connect() as client:
            client.sendall(head_of("/big"))
            assert site.is_alive()
            until(lambda: not site.server.clients, "the server to give up")
            assert len(everything(client)) < len(BIG)

    def test_a_large_page_arrives_whole(self, site: Site) -> None:
        """A client that does read gets everything."""
        assert site.get("/big")[1] == BIG

    def test_vanished_clients_leave_nothing(self, site: Site) -> None:
        """Resets in the middle of a request or of a response are no errors."""
        for data in (b"", b"GET", head_of("/big")):
            with site.connect() as client:
                linger = b"\1\0\0\0\0\0\0\0"
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.sendall(data)

        assert site.is_alive()
        until(lambda: not site.server.clients, "connections to be closed")
        assert site.errors == []

    def test_too_many_clients_are_refused_and_counted(
        self, make_site: Callable[..., Site]
    ) -> None:
        """503 while all places are taken by complete requests, then service again."""
        site = make_site(clients=2)
        with ExitStack() as stack:
            for _ in range(2):
                client = stack.enter_context(site.connect())
                client.sendall(head_of("/later"))
            until(lambda: len(site.later) == 2, "the requests")

            assert site.get("/echo")[0].status == 503
            assert site.server.dropped == 1
            site.later[0].set_result(Response(b"at last"))
        until(site.is_alive, "a free place")

    def test_who_does_not_close_is_not_waited_for(self, make_site):
        """Clients that have their response are few, or closed, and delay no one."""
        site = make_site(clients=2)
        with ExitStack() as stack:
            for _ in range(20):
                client = stack.enter_context(site.connect())
                client.sendall(head_of("/echo"))
                assert status(everything(client)) == 200
                assert site.server.clients <= 5
            assert site.is_alive()
            until(lambda: not site.server.clients, "all to be closed")
        assert site.server.dropped == 0


class TestHostileClients:
    """What is sent to take the server from others, or to slip something past it."""

    def test_slow_readers_of_their_own_words_give_way(
        self, make_site: Callable[..., Site]
    ) -> None:
        """Among too many half requests one is dropped, and a complete one answered."""
        site = make_site(clients=4, read=600)
        with ExitStack() as stack:
            slow = [stack.enter_context(site.connect()) for _ in range(9)]
            for client in slow:
                with suppress(ConnectionError):  # dropped before it is complete
                    client.sendall(b"GET /echo HTTP/1.1\r\n")
            until(site.is_alive, "a place")
            closed, _, _ = select.select(slow, [], [], 60)
            assert 0 < len(closed) < len(slow)
            for client in closed:
                with suppress(ConnectionError):  # dropped with bytes unread
                    assert everything(client) == b""

    def test_clients_that_do_not_read_give_way(self, make_site):
        """The same for those that ask for a page and do not take it."""
        site = make_site(clients=4, write=600)
        with ExitStack() as stack:
            for _ in range(4):
                client = stack.enter_context(site.connect())
                client.sendall(head_of("/big"))
            until(site.is_alive, "a place")

    def test_an_answer_under_way_does_not_give_way(
        self, make_site: Callable[..., Site]
    ) -> None:
        """A complete request gets its response, whichever client wants its place."""
        site = make_site(clients=1, read=600)
        with site.connect() as client:
            client.sendall(head_of("/later"))
            until(lambda: site.later, "the request")
            assert site.get("/echo")[0].status == 503
            site.later[0].set_result(Response(b"at last"))
            assert status(client.recv(1000)) == 200

    @pytest.mark.parametrize(
        "field",
        [
            "X: a\nContent-Length: 5",
            "X: a\rContent-Length: 5",
            "X: a\x00b",
            "X: a\x1bb",
            "X: a\x7f",
        ],
    )
    def test_control_characters_hide_no_header(self, site: Site, field: str) -> None:
        """A proxy in front may end a line there and see a header that we do not."""
        assert status(site.raw(head_of("/echo", field))) == 400
        assert site.requests == []

    @pytest.mark.parametrize(
        "fields",
        [
            ("Content-Length: 0", "Content-Length: 44"),
            ("Content-Length: 44", "Content-Length: 0"),
            ("Content-Length: 0, 44",),
            ("Content-Length: +0",),
            ("Content-Length: 0x0",),
            ("Transfer-Encoding: identity",),
            ("Transfer-Encoding: chunked", "Content-Length: 0"),
            ("transfer-encoding:\tchunked",),
        ],
    )
    def test_a_smuggled_request_is_never_answered(self, site, fields):
        """Whatever a length or an encoding says, nothing behind it is a request."""
        answer = site.raw(head_of("/echo", *fields) + head_of("/echo?smuggled"))

        assert answer.count(b"HTTP/1.1") == 1
        assert all("smuggled" not in request.query for request in site.requests)

    def test_a_client_that_has_said_all_is_answered(self, site: Site) -> None:
        """Half a connection is enough for a response."""
        with site.connect() as client:
            client.sendall(head_of("/echo"))
            client.shutdown(socket.SHUT_WR)
            assert status(everything(client)) == 200

    def test_preferences_without_end_are_cheap(self, site: Site) -> None:
        """Headers as large as may be are read in one pass."""
        for header in ("," * 16_000, ";" * 16_000, "a;q=" * 4000, "*/*;" * 4000):
            assert site.get("/metrics", Accept=header)[0].status == 200
            response, _ = site.get("/metrics", Accept_Encoding=header)
            assert response.status == 200


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return a self-signed certificate for 127.0.0.1, its key in the same file."""
    path = tmp_path / "cert.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {path} -out {path}.crt"
    )
    require_program("openssl")
    subprocess.run(command.split(), check=True, capture_output=True, timeout=240)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


class TestTls:
    """HTTPS by a gate."""

    @pytest.fixture
    def secure(self, certificate: Path) -> Iterator[int]:
        """Return the port of a TLS server with a short handshake timeout."""
        config = certificate.with_name("web.yml")
        config.write_text(TLS.replace("key.pem", "cert.pem"))
        self.errors: list[tuple[str, BaseException]] = []
        server = Server(
            {"/": lambda _: Response(b"secret"), "/big": lambda _: Response(BIG)},
            limits=ServerLimits(read=3),
            on_error=lambda *error: self.errors.append(error),
        )
        with closing(AccessGate(config)) as gate:
            port = server.listen_tcp("127.0.0.1", 0, gate=gate)
            server.start()
            yield port
            server.stop()

    def test_idle_tcp_clients_do_not_block_a_scrape(self, secure, certificate):
        """Handshakes run beside each other, each with its timeout."""
        trust = ssl.create_default_context(cafile=certificate)
        address = ("127.0.0.1", secure)
        with ExitStack() as stack:
            idle = [
                stack.enter_context(socket.create_connection(address, timeout=60))
                for _ in range(20)
            ]
            client = http.client.HTTPSConnection(*address, timeout=60, context=trust)
            with closing(client):
                for path, body in (("/", b"secret"), ("/big", BIG), ("/", b"secret")):
                    client.request("GET", path)
                    assert client.getresponse().read() == body
            assert [everything(one) for one in idle] == [b""] * 20
        assert self.errors == []

    def test_what_follows_a_request_costs_nobody_the_response(
        self, secure, certificate
    ):
        """An unread body does not reset the connection, encrypted or not."""
        trust = ssl.create_default_context(cafile=certificate)
        with (
            socket.create_connection(("127.0.0.1", secure), timeout=60) as plain,
            trust.wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            client.sendall(head_of("/big", "Content-Length: 90000") + b"x" * 90_000)
            assert everything(client).endswith(b"\r\n\r\n" + BIG)
        assert self.errors == []

    def test_a_client_without_tls_is_turned_away(self, secure: int) -> None:
        """Plain HTTP on a TLS port ends that connection and is no error of ours."""
        with socket.create_connection(("127.0.0.1", secure), timeout=60) as client:
            client.sendall(head_of("/"))
            assert b"200" not in everything(client)
        assert self.errors == []
