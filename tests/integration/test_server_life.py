"""The HTTP server in the life of a process: failures, start, stop, exit and fork."""

import http.client
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from jaxmon.host.http.server import Request, Response, Server
from jaxmon.threads import running
from tests.helpers.processes import run_python, until
from tests.helpers.servers import BIG, Site, everything, head_of, sites


@pytest.fixture
def make_site() -> Iterator[Callable[..., Site]]:
    with sites() as make:
        yield make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


class TestFailures:
    """Handlers that fail, and the process around the server."""

    @pytest.mark.parametrize("path", ["/broken", "/exit"])
    def test_a_failing_handler_costs_one_response(self, site: Site, path: str) -> None:
        """500 without details, the error for `on_error`, and service goes on."""
        response, body = site.get(path)

        assert response.status == 500
        assert b"secret" not in body
        assert [where for where, _ in site.errors] == [f"server:{path}"]
        assert site.is_alive()

    def test_an_impossible_response_costs_one_connection(self, site: Site) -> None:
        """A header that cannot be sent is reported and the server lives."""
        assert site.raw(head_of("/invalid")) == b""
        until(lambda: site.errors, "a report")
        assert [where for where, _ in site.errors] == ["server"]
        assert site.is_alive()

    def test_an_error_reporter_that_fails_is_ignored(self) -> None:
        """Nothing that happens while reporting reaches the server."""

        def break_down(_: Request) -> Response:
            raise ValueError

        def fail(_where: str, error: BaseException) -> None:
            raise error

        server = Server({"/": break_down}, on_error=fail)
        port = server.listen_tcp("127.0.0.1", 0)
        server.start()
        try:
            for _ in range(2):
                client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                with closing(client):
                    client.request("GET", "/")
                    assert client.getresponse().status == 500
        finally:
            server.stop()

    def test_running_out_of_descriptors_is_survived(self) -> None:
        """accept() fails until a descriptor is free, then clients are served."""
        result = run_python("-W", "error", "-c", DESCRIPTORS).ok()

        assert result.out.splitlines() == ["True", "200"]
        assert result.err == ""

    def test_nothing_is_logged(self, make_site, caplog):
        """No logger speaks in the user's process."""
        caplog.set_level(logging.DEBUG)
        site = make_site(read=0.1)
        site.get("/broken")
        site.raw(b"GET")
        site.server.stop()

        assert caplog.records == []


DESCRIPTORS = """
import os, resource, socket, threading
from jaxmon.host.http.server import Response, Server

failed = threading.Event()
server = Server({"/": lambda _: Response(b"")}, on_error=lambda *_: failed.set())
port = server.listen_tcp("127.0.0.1", 0)
server.start()
client = socket.socket()
client.settimeout(60)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
client.connect(("127.0.0.1", port))
print(failed.wait(90))
for fd in taken:
    os.close(fd)
client.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
print(client.recv(100).split()[1].decode())
client.close()
server.stop()
"""


class TestLife:
    """Start, stop, exit and fork."""

    def test_stop_ends_everything_and_twice_is_harmless(self, make_site):
        """Thread and sockets are gone, also those of clients in every state."""
        site = make_site()
        with ExitStack() as stack:
            clients = [stack.enter_context(site.connect()) for _ in range(4)]
            clients[1].sendall(b"GET /")
            clients[2].sendall(head_of("/echo"))
            clients[3].sendall(head_of("/big"))
            until(lambda: site.server.clients >= 3, "connections")

            site.server.stop()
            site.server.stop()

            assert clients[0].recv(10) == clients[1].recv(10) == b""
            assert "jaxmon-server" not in {one.name for one in running()}
            with pytest.raises(ConnectionRefusedError):
                site.connect()

    def test_a_response_under_way_is_finished(self, make_site):
        """stop() grants a reading client a moment for the rest of its page."""
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
        """The server thread does not wait for itself."""

        def stop(_: Request) -> Response:
            server.stop()
            return Response(b"last")

        server = Server({"/": stop})
        port = server.listen_tcp("127.0.0.1", 0)
        server.start()
        (thread,) = [one for one in running() if one.name == "jaxmon-server"]
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(head_of("/"))
            assert everything(client).endswith(b"last")
        thread.join(90)
        assert not thread.is_alive()

    def test_a_server_runs_once(self, site: Site) -> None:
        """Neither a second start nor a late listener is accepted."""
        with pytest.raises(RuntimeError, match="create a new one"):
            site.server.start()
        with pytest.raises(RuntimeError, match="before start"):
            site.server.listen_tcp("127.0.0.1", 0)

    @pytest.mark.parametrize("ending", ["", "server.stop()", "raise SystemExit(0)"])
    def test_a_process_ends_as_if_there_were_no_server(self, ending: str) -> None:
        """With or without stop(), at once, in silence, without a warning."""
        result = run_python("-X", "dev", "-W", "error", "-c", EXIT + ending).ok()

        assert (result.out, result.err) == ("200\n", "")

    def test_a_forked_child_can_let_go(self) -> None:
        """The child closes every descriptor that it inherited; the parent serves on."""
        result = run_python("-W", "error", "-c", FORK).ok()

        assert result.out.splitlines() == ["child closed all", "kept 200", "new 200"]
        assert result.err == ""


EXIT = """
import socket, urllib.request
from jaxmon.host.http.server import Response, Server
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
from jaxmon.host.http.server import Response, Server

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
kept = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
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
new = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
for name, client in ("kept", kept), ("new", new):
    client.request("GET", "/")
    print(name, client.getresponse().status)
    client.close()
server.stop()
"""
