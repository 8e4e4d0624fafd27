"""A server of pages for tests, and what clients say to it byte by byte."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from threading import Event

from jaxmon import catalog
from jaxmon.exposition.families import Family, Histogram, gauge
from jaxmon.host.http.server import Request, Response, Server, metrics_handler


BIG = b"x" * 16_000_000


class Site:
    """
    A server with some pages, and everything it reported. ``/hold`` waits on the
    server's thread for `release`, ``/later`` for its future in `later`.
    """

    def __init__(self, **options: float) -> None:
        self.requests: list[Request] = []
        self.errors: list[tuple[str, BaseException]] = []
        self.held, self.release = Event(), Event()
        self.later: list[Future[Response]] = []
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
                "/hold": self._hold,
                "/later": self._later,
            },
            on_error=lambda where, error: self.errors.append((where, error)),
            **options,  # type: ignore[arg-type]
        )
        self.port = self.server.listen_tcp("127.0.0.1", 0)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Return a connection from the address *source* that has sent nothing."""
        address = ("127.0.0.1", self.port)
        return socket.create_connection(address, 20, source_address=(source, 0))

    def get(
        self, path: str, method: str = "GET", *, timeout: float = 60, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Return response and body of one request on its own connection."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with closing(client):
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            client.request(method, path, headers=names)
            response = client.getresponse()
            return response, response.read()

    def raw(self, data: bytes) -> bytes:
        """Return everything that the server answers to *data* until it closes."""
        with self.connect() as client:
            client.sendall(data)
            return everything(client)

    def is_alive(self) -> bool:
        """Return whether a fresh client is served."""
        return self.get("/echo")[0].status == 200

    def _echo(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(b"echo\n", headers={"X-Page": "echo"})

    def _hold(self, _: Request) -> Response:
        self.held.set()
        self.release.wait(90)
        return Response(b"held\n")

    def _later(self, _: Request) -> Future[Response]:
        self.later.append(Future())
        return self.later[-1]

    def _broken(self, _: Request) -> Response:
        msg = "a secret"
        raise LookupError(msg)

    def _exit(self, _: Request) -> Response:
        raise SystemExit


@contextmanager
def sites() -> Iterator[Callable[..., Site]]:
    """Give a function that makes sites whose servers run until the end of the block."""
    with ExitStack() as stack:

        def make(**options: float) -> Site:
            site = Site(**options)
            stack.callback(site.server.stop)
            site.server.start()
            return site

        yield make


def everything(client: socket.socket) -> bytes:
    """Return what comes from *client* until the server closes the connection."""
    received = bytearray()
    while data := client.recv(65536):
        received += data
    return bytes(received)


def status(answer: bytes) -> int:
    """Return the status of a raw response."""
    return int(answer.split(b" ", 2)[1])


def head_of(path: str, *lines: str) -> bytes:
    """Return a raw GET request."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()
