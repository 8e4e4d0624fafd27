"""The middleware on a real server, where responses are cut short."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from jaxmon.asgi import Middleware
from jaxmon.catalog import REQUESTS_IN_PROGRESS
from jaxmon.indicators.routes import RequestTurns
from tests.helpers.indicators import Recorded
from tests.helpers.processes import until
from tests.helpers.servers import everything, served


if TYPE_CHECKING:
    from starlette.requests import Request


async def endless(_: Request) -> Response:
    async def tokens() -> AsyncIterator[bytes]:
        while True:
            yield b"token "
            await asyncio.sleep(0.01)

    return StreamingResponse(tokens())


async def breaking(_: Request) -> Response:
    async def tokens() -> AsyncIterator[bytes]:
        yield b"token "
        raise LookupError

    return StreamingResponse(tokens())


async def upload(request: Request) -> Response:
    await request.body()
    return PlainTextResponse("taken")


async def late(_: Request) -> Response:
    await asyncio.sleep(0.5)
    return PlainTextResponse("late")


async def blocking(_: Request) -> Response:
    time.sleep(0.2)  # noqa: ASYNC251 - the fault
    return PlainTextResponse("done")


HELD = Event()


async def held(_: Request) -> Response:
    HELD.wait()
    return PlainTextResponse("done")


def fail_afterwards(_: Request) -> Response:
    def afterwards() -> None:
        raise LookupError

    return PlainTextResponse("done", background=BackgroundTask(afterwards))


class Half(Response):
    """Begins a response and returns."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})


def read(url: str) -> None:
    with urlopen(url, timeout=60) as response:
        response.read()


@contextmanager
def serving(*, inside: bool) -> Iterator[int]:
    """Serve an application on uvicorn, the middleware in or around it; give a port."""
    app = Starlette(
        routes=[
            Route("/endless", endless),
            Route("/breaking", breaking),
            Route("/upload", upload, methods=["POST"]),
            Route("/afterwards", fail_afterwards),
            Route("/half", lambda _: Half()),
            Route("/late", late),
            Route("/blocking", blocking),
            Route("/held", held),
        ]
    )
    if inside:
        app.add_middleware(Middleware)
    with served(app if inside else Middleware(app)) as port:
        yield port


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "around"])
@pytest.mark.parametrize(
    ("request_head", "leaves", "outcome"),
    [
        ("GET /breaking", False, "error"),
        ("GET /half", False, "error"),
        ("GET /afterwards", False, "success"),
        ("GET /endless", True, "client_error"),
        ("POST /upload", True, "client_error"),
        ("GET /late", True, "client_error"),
        ("GET /late", False, "success"),
    ],
)
def test_who_cuts_a_response_short_tells_the_outcome(
    recorded: Recorded,
    request_head: str,
    leaves: bool,  # noqa: FBT001
    outcome: str,
    inside: bool,  # noqa: FBT001
) -> None:
    """A failure after the status is an error; a client that leaves early is none."""
    with serving(inside=inside) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            head = f"{request_head} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
            body = "" if "upload" in request_head else "123456789"
            client.sendall(f"{head}Connection: close\r\n\r\n{body}".encode())
            if leaves:
                until(lambda: recorded.value(REQUESTS_IN_PROGRESS.name), "the request")
            if "endless" in request_head:
                assert client.recv(1000)
            if not leaves:
                everything(client)
        until(recorded.requests, "the end of the request")

    route = request_head.split()[1]
    assert recorded.requests() == {(route, outcome, "warm"): 1}
    assert recorded.value(REQUESTS_IN_PROGRESS.name) == 0
    # Whether before the response began: of a stream, it has got a part.
    (facts,) = (of.explain() for of in recorded.routes)
    assert facts.left == (leaves and "endless" not in request_head)


def test_how_long_requests_wait_for_their_turn_is_known(recorded: Recorded) -> None:
    """While a handler blocks the loop, others wait, before they begin; or none does."""
    waited = {}
    for path in ("/late", "/blocking"):
        recorded.routes.turns = RequestTurns()
        with serving(inside=True) as port, ThreadPoolExecutor(6) as clients:
            url = f"http://127.0.0.1:{port}{path}"
            began = time.perf_counter()
            list(clients.map(read, [url] * 12))
            took = time.perf_counter() - began
        number, waited[path] = recorded.routes.turns.lately()
        assert number
        assert waited[path] < took
    assert waited["/blocking"] > max(0.2, 2 * waited["/late"])


@pytest.mark.parametrize("outcome", ["client_error", "success"])
def test_callers_of_a_blocked_loop_have_waited_and_may_have_left(
    outcome: str, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those who left, the server has heard nothing when it responds to them."""
    for module in ("jaxmon.asgi", "jaxmon.indicators.routes"):
        monkeypatch.setattr(f"{module}.LONG_TURN", 0.1)
    head = b"GET /held HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    HELD.clear()
    with serving(inside=True) as port:
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        clients[0].sendall(head)
        until(lambda: recorded.value(REQUESTS_IN_PROGRESS.name), "the first request")
        for client in clients[1:]:
            client.sendall(head)
            if outcome == "client_error":
                client.close()
        time.sleep(0.2)
        HELD.set()
        for client in clients:
            if client.fileno() >= 0:
                everything(client)
                client.close()
        until(lambda: sum(recorded.requests().values()) == len(clients), "the rest")
    (route,) = recorded.routes
    facts = route.explain()
    assert facts.left == (4 if outcome == "client_error" else 0)
    (mean,) = [of.mean_seconds for of in facts.finished if of.outcome == outcome]
    assert mean is not None
    assert mean >= 0.2


def test_a_server_that_calls_the_end_a_disconnect(recorded: Recorded) -> None:
    """A listener may be notified while the last byte is in transit."""

    async def exchange() -> None:
        ended = asyncio.Event()

        async def receive() -> dict[str, str]:
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message.get("more_body") is False:
                ended.set()
                for _ in range(5):  # turns, in which the listener hears it
                    await asyncio.sleep(0)

        async def app(_scope: Any, receive: Any, send: Any) -> None:
            listening = asyncio.create_task(receive())
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "more_body": False})
            await listening

        await Middleware(app)({"type": "http"}, receive, send)

    asyncio.run(exchange())

    assert recorded.requests() == {("unmatched", "success", "warm"): 1}
