"""The WSGI middleware around Flask on a real server, against what its clients saw."""

import http.client
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from io import BytesIO
from typing import Any

import pytest
from flask import Flask, Response, send_file
from werkzeug.serving import WSGIRequestHandler, make_server

from jaxmon.catalog import REQUEST_SECONDS, REQUESTS_IN_PROGRESS
from jaxmon.indicators.work import mark_cold
from jaxmon.wsgi import WsgiMiddleware
from tests.helpers.indicators import Recorded
from tests.helpers.processes import until
from tests.helpers.servers import everything


OUTCOMES = {2: "success", 3: "success", 4: "client_error", 5: "error"}
PATHS = {
    "/items/7": "/items/<int:item>",
    "/items/8": "/items/<int:item>",
    "/items/seven": "unmatched",
    "/nothing": "unmatched",
    "/cold": "/cold",
    "/fails": "/fails",
    "/teapot": "/teapot",
    "/stream": "/stream",
    "/file": "/file",
    "/only-post": "/only-post",
    "/folder": "unmatched",
}


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log(self, *_: Any, **__: Any) -> None:
        pass


def site() -> Flask:  # noqa: C901 - a function for each route
    app = Flask("site")

    @app.get("/items/<int:item>")
    def items(item: int) -> str:
        return f"{item}"

    @app.get("/cold")
    def cold() -> str:
        mark_cold()
        return "compiled"

    @app.get("/fails")
    def fails() -> str:
        raise LookupError

    @app.get("/teapot")
    def teapot() -> tuple[str, int]:
        return "short and stout", 418

    @app.get("/stream")
    def stream() -> Response:
        return Response(str(n) for n in range(100))

    @app.get("/file")
    def file() -> Response:
        return send_file(BytesIO(b"x" * 100_000), mimetype="text/plain")

    @app.post("/only-post")
    def post() -> str:
        return ""

    @app.get("/folder/")
    def folder() -> str:
        return ""

    @app.get("/endless")
    def endless() -> Response:
        return Response(b"x" * 100_000 for _ in iter(int, 1))

    @app.get("/breaks")
    def breaks() -> Response:
        def body() -> Iterator[bytes]:
            yield b"x"
            raise LookupError

        return Response(body())

    return app


@contextmanager
def served(app: Flask) -> Iterator[int]:
    app.wsgi_app = WsgiMiddleware(app.wsgi_app)  # type: ignore[method-assign]
    app.logger.disabled = True
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    server.log = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def status_of(port: int, path: str) -> int:
    """Return the status of one request, after its whole response."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        client.request("GET", path)
        response = client.getresponse()
        response.read()
        return response.status
    finally:
        client.close()


def test_requests_equal_what_the_clients_counted(recorded: Recorded) -> None:
    """Under load, every request counts once by template, outcome and start."""
    truth: Counter[tuple[str, str, str]] = Counter()
    with served(site()) as port, ThreadPoolExecutor(8) as clients:
        asked = [path for path in PATHS for _ in range(20)]
        for path, status in zip(
            asked, clients.map(lambda path: status_of(port, path), asked), strict=True
        ):
            start = "cold" if path == "/cold" else "warm"
            truth[PATHS[path], OUTCOMES[status // 100], start] += 1
        until(lambda: recorded.requests() == truth, "the end of all requests")

    assert recorded.value(REQUESTS_IN_PROGRESS.name) == 0
    assert recorded.value(f"{REQUEST_SECONDS.name}_count") == sum(truth.values())
    assert not recorded.failures.failures()


@pytest.mark.parametrize(
    ("route", "outcome"), [("/ready", "client_error"), ("/predict", "error")]
)
def test_a_probe_of_what_is_not_ready_is_no_error(recorded, route, outcome):
    """With a 503 it does what it is for; any other route has failed."""
    app = plain("503 SERVICE UNAVAILABLE", [b""])
    called(WsgiMiddleware(app, route=lambda _: route))

    assert recorded.requests() == {(route, outcome, "warm"): 1}
    (of,) = recorded.explain_requests()
    assert [one.error for one in of.failures] == ["status 503"] * (outcome == "error")


@pytest.mark.parametrize(
    ("path", "outcome"), [("/endless", "client_error"), ("/breaks", "error")]
)
def test_who_cuts_a_response_short_tells_the_outcome(recorded, path, outcome):
    """A client that leaves is a client error; a body that fails is an error."""
    with served(site()) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            if path == "/endless":
                assert client.recv(1000)
            else:
                everything(client)
        until(recorded.requests, "the end of the request")

    assert recorded.requests() == {(path, outcome, "warm"): 1}


def ignored(*_: Any) -> Any:
    """Start a response that is not looked at."""


def called(app: Any, **environ: Any) -> list[bytes]:
    """Call *app* as a server does; return the body."""
    body = app({"REQUEST_METHOD": "GET", **environ}, ignored)
    try:
        return list(body)
    finally:
        getattr(body, "close", bool)()


def plain(status: str, body: Any) -> Any:
    """Return an application that responds *status* and *body*."""

    def app(_: Any, start_response: Any) -> Any:
        start_response(status, [])
        return body

    return app


def test_the_program_may_say_the_route(recorded: Recorded) -> None:
    """A function of the program names the route; one that fails costs only the name."""
    app = plain("200 OK", [b"a", b"b"])
    body = called(WsgiMiddleware(app, route=lambda _: "/by/{hand}"))
    called(WsgiMiddleware(app, route=lambda _: None))

    assert body == [b"a", b"b"]
    assert recorded.requests() == {
        ("/by/{hand}", "success", "warm"): 1,
        ("unmatched", "success", "warm"): 1,
    }


@pytest.mark.contained
def test_a_route_that_fails_leaves_the_response(recorded: Recorded) -> None:
    """An exception in the program's function is counted; the response is complete."""
    app = WsgiMiddleware(
        plain("200 OK", [b"a"]), route=lambda environ: environ["missing"]
    )

    assert called(app) == [b"a"]
    assert recorded.requests() == {("unmatched", "success", "warm"): 1}
    assert recorded.failures.failures() == {"wsgi": 1}


def test_a_body_that_need_not_be_read(recorded: Recorded) -> None:
    """A server that reads no body where there is none has not lost its client."""
    for method, status in (("HEAD", "200 OK"), ("GET", "304 NOT MODIFIED")):
        app = WsgiMiddleware(plain(status, iter([b""])))
        body: Any = app({"REQUEST_METHOD": method}, ignored)
        body.close()

    assert recorded.requests() == {("unmatched", "success", "warm"): 2}


def test_a_caller_who_left_before_the_response_began(recorded: Recorded) -> None:
    """The server has stopped at the first part; of a stream, the client got some."""
    for parts, left in ((1, 1), (2, 1)):
        body: Any = WsgiMiddleware(plain("200 OK", iter([b"a"] * 3)))({}, ignored)
        for _ in range(parts):
            next(body)
        body.close()
        (route,) = (of.explain() for of in recorded.routes)
        assert route.left == left

    assert recorded.requests() == {("unmatched", "client_error", "warm"): 2}


def test_what_servers_look_at_is_unchanged(recorded: Recorded) -> None:
    """A list keeps its length, and a file its type; both count once."""
    sized: Any = WsgiMiddleware(plain("200 OK", [b"a", b"b"]))({}, ignored)
    assert len(sized) == 2
    assert list(sized) == [b"a", b"b"]
    sized.close()
    sized.close()
    file = WsgiMiddleware(plain("200 OK", BytesIO()))
    assert type(file({"wsgi.file_wrapper": BytesIO}, ignored)) is BytesIO

    assert recorded.requests() == {("unmatched", "success", "warm"): 2}


def test_without_an_agent_the_body_is_the_applications_own() -> None:
    """Nothing is wrapped."""
    own = [b"a"]
    assert WsgiMiddleware(plain("200 OK", own))({}, ignored) is own


def test_the_start_of_a_response_is_handed_on_as_it_is(recorded: Recorded) -> None:
    """Which status and headers are valid, and what is returned, is the server's."""
    given: list[Any] = []

    def start(*args: Any, **options: Any) -> Any:
        given.append((args, options))
        return given

    def app(_: Any, start_response: Any) -> list[bytes]:
        for status in (200, HTTPStatus.OK, b"200 OK", "200 OK", "2", None, 404):
            assert start_response(status, headers) is given
            assert given[-1][0] == (status, headers)
            assert type(given[-1][0][0]) is type(status)
            assert given[-1][0][1] is headers
        start_response(503, headers, exc_info=failure)
        start_response(HTTPStatus.BAD_GATEWAY, headers, failure)
        return []

    headers, failure = ("no", "list"), (None, None, None)
    list(WsgiMiddleware(app)({}, start))

    assert given[-2:] == [
        ((503, headers), {"exc_info": failure}),
        ((HTTPStatus.BAD_GATEWAY, headers, failure), {}),
    ]
    assert recorded.requests() == {("unmatched", "error", "warm"): 1}
