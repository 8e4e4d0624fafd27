"""
Servers of pages for tests: a plain one, and what clients say to it byte by byte, one
behind a web configuration, and one of ASGI.
"""

import base64
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import trustme
import uvicorn

from jaxmon import catalog
from jaxmon.exposition.families import Family, Histogram, gauge
from jaxmon.host.http.connections import ServerLimits
from jaxmon.host.http.server import Request, Response, Server, metrics_handler
from jaxmon_exporter.gate import AccessGate


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
            limits=ServerLimits(**options),  # type: ignore[arg-type]
        )
        self.port = self.server.listen_tcp("127.0.0.1", 0)

    def connect(self) -> socket.socket:
        """Return a connection that has sent nothing."""
        return socket.create_connection(("127.0.0.1", self.port), 20)

    def get(
        self, path: str, method: str = "GET", *, timeout: float = 60, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
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


PAGE = b"the page\n"


def page(_: Any) -> Response:
    return Response(PAGE)


class GuardedSite:
    """A server behind a web configuration, and those who may sign certificates."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.authority = trustme.CA()
        self.path = directory / "web.yml"
        self._stack = stack
        self.port = 0
        self.gate: AccessGate
        self.errors: list[tuple[str, BaseException]] = []

    def certify(self, name: str = "localhost", **options: Any) -> None:
        """Write ``cert.pem`` and ``key.pem`` for the server."""
        issued = self.authority.issue_cert(name, **options)
        issued.private_key_pem.write_to_path(str(self.directory / "key.pem"))
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        (self.directory / "cert.pem").write_bytes(chain)

    def serve(self, config: str, *, read_timeout: float = 60) -> None:
        self.path.write_text(config)
        self.gate = AccessGate(self.path)
        self._stack.callback(self.gate.close)
        server = Server(
            {"/metrics": page, "/-/healthy": page},
            limits=ServerLimits(read=read_timeout),
            on_error=lambda *error: self.errors.append(error),
        )
        self.port = server.listen_tcp("127.0.0.1", 0, gate=self.gate)
        server.start()
        self._stack.callback(server.stop)

    def trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    def get(
        self,
        path: str = "/metrics",
        *,
        context: ssl.SSLContext | None = None,
        user: tuple[str, str] | None = None,
        **headers: str,
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        if user is not None:
            encoded = base64.b64encode(":".join(user).encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
        connection = (
            http.client.HTTPConnection("localhost", self.port, timeout=60)
            if context is None
            else http.client.HTTPSConnection(
                "localhost", self.port, timeout=60, context=context
            )
        )
        with closing(connection):
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(), response.headers


TLS = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
CLIENTS = TLS + "  client_ca_file: ca.pem\n"


@contextmanager
def served(app: Any) -> Iterator[int]:
    """Serve *app* on uvicorn while the block runs; give the port."""
    config = uvicorn.Config(app, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
