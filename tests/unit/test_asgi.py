"""The middleware, driven as a server drives it."""

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware as Install
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Host, Mount, Route, WebSocketRoute

import jaxmon
from jaxmon import asgi
from jaxmon.asgi import Middleware
from jaxmon.catalog import REQUESTS, REQUESTS_IN_PROGRESS
from jaxmon.indicators.work import mark_cold


COUNT, IN_PROGRESS = REQUESTS.name, REQUESTS_IN_PROGRESS.name


def get(app, path, *, method="GET", sent=None, host="testserver"):
    """Make one request, and return the messages that the application sent."""
    messages = []
    bodies = iter([b""])

    async def receive():
        for body in bodies:
            return {"type": "http.request", "body": body, "more_body": False}
        return await asyncio.Future()  # the client stays, until nobody listens

    async def send(message):
        messages.append(message)
        if sent is not None:
            sent(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", host.encode())],
    }
    asyncio.run(app(scope, receive, send))
    return messages


def counts(recorded):
    """Return route, outcome and start of the requests that ended, with their number."""
    return {
        tuple(part.split('"')[1] for part in one.split(",")): value
        for one, value in recorded.samples().items()
        if one.startswith(COUNT) and value
    }


def hello(_):
    return PlainTextResponse("hello")


def fail(_):
    raise LookupError


async def foreign(scope, receive, send):
    await PlainTextResponse("foreign")(scope, receive, send)


def passing_on(app):
    """Return a middleware that does not show what is inside."""

    async def call(scope, receive, send):
        await app(scope, receive, send)

    return call


def site():
    """Return an application with routes of every kind."""
    items = [Route("/{item:int}", hello), Route("/{item:int}/{part}", hello)]
    return Starlette(
        routes=[
            Route("/", hello),
            Route("/hello/{name}", hello),
            Route("/submit", hello, methods=["POST"]),
            Route("/fail", fail),
            Route("/teapot", lambda _: Response(status_code=418)),
            *(
                Route(path, lambda _: Response(status_code=503))
                for path in ("/broken", "/health/ready/", "/ready/{item}")
            ),
            Route("/healthz", lambda _: Response(status_code=500)),
            Mount("/items", routes=items),
            Mount("/{tenant}/nested", routes=[Mount("/deep", routes=items)]),
            Mount("/static", app=foreign),
            Host("{sub}.example.org", app=Starlette(routes=items)),
        ]
    )


# --- routes -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/", "/"),
        ("/hello/world", "/hello/{name}"),
        ("/submit", "/submit"),
        ("/items/7", "/items/{item}"),
        ("/items/7/wheel", "/items/{item}/{part}"),
        ("/items/seven", "unmatched"),
        ("/acme/nested/deep/7", "/{tenant}/nested/deep/{item}"),
        ("/static/site.css", "/static/{path}"),
        ("/nothing", "unmatched"),
    ],
)
@pytest.mark.parametrize(
    "installed", ["inside", "outside", "around others", "around a function"]
)
def test_the_route_is_a_template(recorded, path, template, installed):
    """Never the path, wherever the middleware stands and however routes are nested."""
    app = site()
    if installed == "inside":
        app.add_middleware(Middleware)
    elif installed == "outside":
        app = Middleware(app)
    elif installed == "around a function":
        app.add_middleware(passing_on)
        app.add_middleware(Middleware)
    else:
        app = Middleware(GZipMiddleware(Middleware(app)))
    get(app, path)

    assert {route for route, _, _ in counts(recorded)} == {template}
    assert sum(counts(recorded).values()) == 1


def test_a_route_below_a_host_is_found(recorded):
    """The host's own name is no part of the template."""
    get(Middleware(site()), "/7", host="a.example.org")

    assert counts(recorded) == {("/{item}", "success", "warm"): 1}


@pytest.mark.parametrize(
    ("method", "path", "template"),
    [
        ("GET", "/api/items/7", "/api/items/{item}"),
        ("POST", "/api/items", "/api/items"),
        ("GET", "/api/inner/deep/a/b", "/api/inner/deep/{rest}"),
        ("GET", "/acme/items/7", "/{tenant}/items/{item}"),
        ("GET", "/direct/7", "/direct/{number}"),
        ("GET", "/api/nothing", "unmatched"),
    ],
)
def test_routes_of_fastapi_are_found(recorded, method, path, template):
    """Those of routers that are included, below each other as well, and of mounts."""
    from fastapi import APIRouter, FastAPI

    items, inner, app = APIRouter(), APIRouter(prefix="/inner"), FastAPI()

    @items.get("/items/{item}")
    def item(item: int) -> int:
        return item

    @items.post("/items")
    async def create() -> None: ...

    @inner.get("/deep/{rest:path}")
    async def deep(rest: str) -> str:
        return rest

    @app.get("/direct/{number}")
    async def direct(number: int) -> int:
        return number

    tenants = FastAPI()
    tenants.include_router(items)
    items.include_router(inner)
    app.include_router(items, prefix="/api")
    app.mount("/{tenant}", tenants)
    app.add_middleware(Middleware)
    get(app, path, method=method)

    ended = "client_error" if template == "unmatched" else "success"
    assert counts(recorded) == {(template, ended, "warm"): 1}


@pytest.mark.contained
def test_a_router_that_is_none_is_contained(recorded):
    """What has `routes` of another kind is served, as unmatched."""

    class Odd:
        routes = ("a", "b")

        async def __call__(self, scope, receive, send):
            await foreign(scope, receive, send)

    for _ in range(20):
        get(Middleware(Odd()), "/")

    assert counts(recorded) == {("unmatched", "success", "warm"): 20}
    assert recorded.failures.failures() == {asgi.SITE: 10}


# --- outcomes -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("/", "success"),
        ("/teapot", "client_error"),
        ("/nothing", "client_error"),
        ("/submit", "client_error"),
        ("/broken", "error"),
        ("/health/ready/", "client_error"),
        ("/ready/7", "error"),
        ("/healthz", "error"),
    ],
)
def test_the_status_tells_the_outcome(recorded, path, outcome):
    """4xx is the client's fault, 5xx ours, but for probes of what is not ready."""
    get(Middleware(site()), path)

    assert [found for _, found, _ in counts(recorded)] == [outcome]
    (of,) = recorded.explain_requests()
    said = [one.error for one in of.failures]
    status = 500 if path == "/healthz" else 503
    assert said == ([f"status {status}"] if outcome == "error" else [])


def test_a_message_is_handed_on_as_it_is(recorded):
    """Which status is valid is the server's to say, also if there is none."""
    start = {"type": "http.response.start", "headers": []}
    for status in ({}, {"status": None}, {"status": "503"}, {"status": 503}):
        messages = [{**start, **status}, {"type": "http.response.body"}]

        async def app(_scope, _receive, send, messages=messages):
            for message in messages:
                await send(message)

        sent = get(Middleware(app), "/")
        assert [id(one) for one in sent] == [id(one) for one in messages]
        assert sent == [{**start, **status}, {"type": "http.response.body"}]

    assert counts(recorded) == {
        ("unmatched", "success", "warm"): 2,
        ("unmatched", "error", "warm"): 2,
    }


@pytest.mark.parametrize("installed", ["inside", "outside"])
def test_an_exception_is_an_error_and_goes_on(recorded, installed):
    """Counted once, whether the 500 that the server makes of it passes us or not."""
    app = site()
    if installed == "inside":
        app.add_middleware(Middleware)
    else:
        app = Middleware(app)
    with pytest.raises(LookupError):
        get(app, "/fail")

    assert counts(recorded) == {("/fail", "error", "warm"): 1}
    assert [type(error) for error in recorded.errors] == [LookupError]
    # With the last byte of the 500 the request has ended, while that is handled.
    (of,) = recorded.explain_requests()
    (failure,) = of.failures
    status = "" if installed == "inside" else " (status 500)"
    assert failure.error == f"LookupError{status}"


def test_no_response_is_an_error(recorded):
    """A server answers 500 for an application that does not."""

    async def silent(*_):
        pass

    get(Middleware(silent), "/")

    assert counts(recorded) == {("unmatched", "error", "warm"): 1}


# --- how long -----------------------------------------------------------------


def test_a_request_lasts_to_the_last_byte(recorded):
    """Through all of a streamed response, and not through what follows it."""
    in_progress = []

    async def pieces():
        for piece in ("one", "two"):
            yield piece

    def afterwards():
        in_progress.append(recorded.value(IN_PROGRESS))
        mark_cold()
        with jaxmon.request("afterwards"):
            pass

    def stream(_):
        return StreamingResponse(pieces(), background=BackgroundTask(afterwards))

    app = Middleware(Starlette(routes=[Route("/stream", stream)]))
    sent = get(
        app, "/stream", sent=lambda _: in_progress.append(recorded.value(IN_PROGRESS))
    )

    assert [message.get("body") for message in sent] == [None, b"one", b"two", b""]
    assert in_progress == [1, 1, 1, 1, 0]
    assert counts(recorded) == {
        ("/stream", "success", "warm"): 1,
        ("afterwards", "success", "warm"): 1,
    }


@pytest.mark.parametrize("kind", ["pathsend", "zerocopysend"])
def test_a_file_that_the_server_sends_ends_it(recorded, kind):
    """By the extensions of ASGI for that; what fails afterwards is no part of it."""

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200})
        await send({"type": f"http.response.{kind}", "path": "/file", "file": 3})
        raise LookupError

    with pytest.raises(LookupError):
        get(Middleware(app), "/")

    assert counts(recorded) == {("unmatched", "success", "warm"): 1}


def test_a_compile_makes_it_cold(recorded):
    """On Starlette's threads as well; a marked handler is part of its request."""

    @jaxmon.request("handler")
    def compiles(_):
        mark_cold()
        return PlainTextResponse("")

    get(Middleware(Starlette(routes=[Route("/compile", compiles)])), "/compile")

    assert counts(recorded) == {("/compile", "success", "cold"): 1}


# --- what passes through ------------------------------------------------------


def test_websockets_pass_through(recorded):
    """The application gets the server's own callables."""
    seen: list[Any] = []

    async def app(*arguments):
        seen.extend(arguments)

    given: Any = {"type": "websocket"}, object(), object()
    asyncio.run(Middleware(app)(*given))

    assert list(map(id, seen)) == list(map(id, given))
    assert recorded.values(COUNT) == []


def test_what_is_left_is_pushed_when_the_application_has_shut_down(recorded):
    """Servers may end the process by a signal then, so that no exit handler runs."""
    ends = ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    said: list[str] = []

    def flush(seconds):
        said.append("pushed")
        return True

    recorded.flush = flush

    async def app(scope, receive, send):
        for one in ends:
            await send({"type": one})

    async def send(message):
        said.append(message["type"])

    given: Any = {"type": "lifespan"}, object(), send
    asyncio.run(Middleware(app)(*given))

    assert said == [ends[0], "pushed", ends[1]]
    assert recorded.values(COUNT) == []


def test_nothing_happens_where_nobody_records():
    """The application gets the server's own callables."""
    seen: list[Any] = []

    async def app(*arguments):
        seen.extend(arguments)

    send: Any = object()
    asyncio.run(Middleware(app)({"type": "http"}, send, send))

    assert seen[2] is send


def test_a_websocket_route_is_no_template(recorded):
    """A plain request for one is unmatched."""
    app = Starlette(
        routes=[WebSocketRoute("/socket", foreign)], middleware=[Install(Middleware)]
    )
    get(app, "/socket")

    assert counts(recorded) == {("unmatched", "client_error", "warm"): 1}
