"""Streams of tokens: generators that real servers step through, with JAX."""

import gc
import http.client
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from jaxmon.agent import Agent
from jaxmon.asgi import Middleware
from tests.helpers.agents import samples, value
from tests.helpers.processes import until
from tests.helpers.servers import served


IN_PROGRESS = "jaxmon_requests_in_progress"
TOKENS = 3


def requests(agent: Agent) -> dict[tuple[str, ...], float]:
    """Return route, outcome and start of the requests that ended, with their number."""
    return {
        tuple(part.split('"')[1] for part in series.split(",")): number
        for series, number in samples(agent).items()
        if series.startswith("jaxmon_requests_total") and number
    }


class Model:
    """Compiles as the second token of the first stream is asked for."""

    def __init__(self) -> None:
        # Once for each model: JAX knows no program of it.
        self._next = jax.jit(lambda x: jnp.sin(x) + 1)

    def _token(self, number: int) -> bytes:
        return b"token " if number != 1 else str(self._next(np.ones(2))[0]).encode()

    @jaxmon.request("tokens")
    def tokens(self) -> Iterator[bytes]:
        for number in range(TOKENS):
            yield self._token(number)

    @jaxmon.request("tokens")
    async def async_tokens(self) -> AsyncIterator[bytes]:
        for number in range(TOKENS):
            yield self._token(number)

    @jaxmon.request("tokens")
    def endless(self) -> Iterator[bytes]:
        for number in itertools.count():
            yield self._token(number)


def starlette(make: Callable[[], Any]) -> Any:
    from starlette.applications import Starlette
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    async def answer(_: Any) -> StreamingResponse:
        return StreamingResponse(make())

    return Starlette(routes=[Route("/stream/{name}", answer)])


def fastapi(make: Callable[[], Any]) -> Any:
    from fastapi import FastAPI
    from starlette.responses import StreamingResponse

    app = FastAPI()

    # One that is no coroutine: FastAPI runs it on a thread, and the stream on others.
    @app.get("/stream/{name}")
    def answer(name: str) -> StreamingResponse:
        del name
        return StreamingResponse(make())

    return app


def get(port: int) -> bytes:
    """Return a whole stream."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:
        client.request("GET", "/stream/x")
        return client.getresponse().read()


@pytest.mark.parametrize("app", [starlette, fastapi])
@pytest.mark.parametrize("kind", ["tokens", "async_tokens"])
def test_a_stream_that_waits_for_a_compile_is_cold(agent, app, kind):
    """Each of its steps runs on some thread, in a copy of the server's context."""
    model = Model()
    with served(app(getattr(model, kind))) as port:
        assert get(port).startswith(b"token 1.8")
        assert requests(agent) == {("tokens", "success", "cold"): 1}
        get(port)

    assert requests(agent) == {
        ("tokens", "success", "cold"): 1,
        ("tokens", "success", "warm"): 1,
    }
    assert value(agent, IN_PROGRESS) == 0


@pytest.mark.parametrize("app", [starlette, fastapi])
@pytest.mark.parametrize("kind", ["tokens", "async_tokens"])
def test_within_the_middleware_a_stream_is_part_of_its_request(agent, app, kind):
    """One request, by the route's template, and cold."""
    application = app(getattr(Model(), kind))
    application.add_middleware(Middleware)
    with served(application) as port:
        get(port)
        until(lambda: requests(agent), "the end of the request")

    assert requests(agent) == {("/stream/{name}", "success", "cold"): 1}
    assert value(agent, IN_PROGRESS) == 0


@pytest.mark.parametrize("app", [starlette, fastapi])
def test_a_stream_that_the_client_leaves_ends(
    agent: Agent, app: Callable[..., Any]
) -> None:
    """It ends as the generator is dropped."""

    def ended() -> object:
        gc.collect()
        return requests(agent)

    with served(app(Model().endless)) as port:
        with closing(
            http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        ) as client:
            client.request("GET", "/stream/x")
            assert client.getresponse().read(100)
            assert value(agent, IN_PROGRESS) == 1
        until(ended, "the end of the request")

    assert requests(agent) == {("tokens", "client_error", "cold"): 1}
    assert value(agent, IN_PROGRESS) == 0
