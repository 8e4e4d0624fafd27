"""Pages of the Unix socket only, and pages that another thread makes."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

import pytest

from jaxmon.host.http.connections import ServerLimits
from jaxmon.host.http.server import Request, Response, Server
from tests.helpers.processes import until


class Site:
    """A server with a public endpoint, and one that is answered by a future."""

    def __init__(self, path: Path, **options: float) -> None:
        self.errors: list[tuple[str, BaseException]] = []
        self.futures: list[Future[Response]] = []
        self.path = path
        self.server = Server(
            {"/page": lambda _: Response(b"for all")},
            local_routes={
                "/local": lambda _: Response(b"for some"),
                "/later": self._later,
                "/done": self._done,
                "/page/none": lambda _: None,  # type: ignore[dict-item,return-value]
            },
            on_error=lambda where, error: self.errors.append((where, error)),
            limits=ServerLimits(**options),  # type: ignore[arg-type]
        )
        self.port = self.server.listen_tcp("127.0.0.1", 0)
        self.server.listen_unix(path)
        self.server.start()

    def _later(self, _: Request) -> Future[Response]:
        self.futures.append(Future())
        return self.futures[-1]

    def _done(self, _: Request) -> Future[Response]:
        done: Future[Response] = Future()
        done.set_result(Response(b"known"))
        return done

    def connect(self, *, local: bool = True) -> socket.socket:
        """Return a connection to either socket."""
        if not local:
            return socket.create_connection(("127.0.0.1", self.port), timeout=60)
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(60)
        client.connect(str(self.path))
        return client

    def get(self, path: str, *, local: bool = True) -> tuple[int, bytes]:
        with self.connect(local=local) as client:
            client.sendall(request(path))
            return answer(client)

    def ask_later(self) -> tuple[socket.socket, Future[Response]]:
        """Return a connection that waits for the page of a future, and that future."""
        client = self.connect()
        count = len(self.futures) + 1
        client.sendall(request("/later"))
        until(lambda: len(self.futures) == count, "the handler to be asked")
        return client, self.futures[-1]


def request(path: str) -> bytes:
    """Return a raw request, the last of its connection."""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()


def answer(client: socket.socket) -> tuple[int, bytes]:
    """Return status and body of what comes, 0 if nothing does."""
    received = bytearray()
    while data := client.recv(65536):
        received += data
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


@pytest.fixture
def make_site(run_dir: Path) -> Iterator[Callable[..., Site]]:
    with ExitStack() as stack:

        def make(**options: float) -> Site:
            site = Site(run_dir / "s.sock", **options)
            stack.callback(site.server.stop)
            return site

        yield make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


def test_local_pages_are_served_on_the_unix_socket_only(site: Site) -> None:
    """Over TCP they do not exist, and are not even named; the others are on both."""
    assert site.get("/local") == (200, b"for some")
    assert site.get("/page") == (200, b"for all")
    assert site.get("/page", local=False) == (200, b"for all")
    for path in ("/local", "/later", "//local", "/%6cocal", "/local?x=1"):
        code, body = site.get(path, local=False)
        assert code == 404
        assert b"local" not in body
    assert site.futures == []
    assert b"/local" in site.get("/nowhere")[1]


def test_future_answers_when_it_is_done(site: Site) -> None:
    """Its client waits; others are served meanwhile."""
    client, future = site.ask_later()
    with client:
        assert site.get("/page") == (200, b"for all")
        assert site.get("/page", local=False) == (200, b"for all")
        future.set_result(Response(b"at last", status=202))
        assert answer(client) == (202, b"at last")
    assert site.errors == []


def test_several_futures_answer_in_any_order(site: Site) -> None:
    """Each client gets its own page, whichever is ready first."""
    asked = [site.ask_later() for _ in range(3)]
    for number, (_, future) in reversed(list(enumerate(asked))):
        future.set_result(Response(str(number).encode()))
    for number, (client, _) in enumerate(asked):
        with client:
            assert answer(client) == (200, str(number).encode())


def test_failing_future_is_an_error_of_its_page(site: Site) -> None:
    """The client learns that the response failed, not why; the failure is reported."""
    client, future = site.ask_later()
    error = LookupError("a secret")
    with client:
        future.set_exception(error)
        code, body = answer(client)
    assert code == 500
    assert b"secret" not in body
    assert site.errors == [("server:/later", error)]
    assert site.get("/page") == (200, b"for all")


def test_page_that_never_comes_is_given_up(make_site: Callable[..., Site]) -> None:
    """A future that is never completed does not hold a connection forever."""
    site = make_site(answer=0.1)
    client, future = site.ask_later()
    with client:
        assert answer(client)[0] == 500
    assert future.cancelled()
    ((where, error),) = site.errors
    assert (where, type(error)) == ("server:/later", TimeoutError)


def test_client_that_leaves_while_its_page_is_made(site: Site) -> None:
    """The response is generated for no client, which is harmless."""
    client, future = site.ask_later()
    client.close()
    future.set_result(Response(b"x" * 10_000_000))
    until(lambda: not site.server.clients, "the connection to be gone")
    assert site.errors == []
    assert site.get("/page") == (200, b"for all")


def test_stop_does_not_wait_for_a_pending_page(site: Site) -> None:
    """The client is dropped, and the future cancelled."""
    client, future = site.ask_later()
    future.set_running_or_notify_cancel()
    other, waiting = site.ask_later()
    site.server.stop()
    with client, other:
        assert answer(client) == (0, b"")
        assert answer(other) == (0, b"")
    assert waiting.cancelled()
    failures: list[BaseException] = []

    def complete() -> None:
        try:
            future.set_result(Response(b"too late"))
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    thread = threading.Thread(target=complete)
    thread.start()
    thread.join()
    assert failures == []
    assert site.errors == []
