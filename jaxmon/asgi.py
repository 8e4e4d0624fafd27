"""
Requests of an ASGI application: FastAPI, Starlette, or any other.

    from jaxmon.asgi import Middleware

    app.add_middleware(Middleware)      # Starlette, FastAPI
    app = Middleware(app)               # anything else

Each HTTP request is recorded as a `jaxmon.request`. Its route is the matched template
(``/items/{id}``), never the path; unmatched requests are ``unmatched``. It lasts until
the last byte of the response is sent, and counts from when it came if that is a second
or more before it is here, for the event loop is held up, or middleware around this
waits; where Linux and uvicorn say so. The status determines the outcome: 4xx is
``client_error``, 5xx ``error``. A truncated response, for example a stream that fails
midway, is an ``error`` whatever its status; if the client disconnects first, it is a
``client_error``. That it has is known if the application receives the server's message,
or if the server is uvicorn, and nothing between it and this replaces ``receive``; on
Linux, also if the event loop was held up meanwhile.

With the setting ``serverless``, metrics and spans are pushed before the last byte is
sent: after it, the platform may freeze the process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, ClassVar, TypeAlias

from jaxmon.indicators import invocations, requests
from jaxmon.indicators.endings import now
from jaxmon.indicators.recorder import RequestOrigin, recorder
from jaxmon.indicators.routes import LONG_TURN, arrival
from jaxmon.indicators.work import serving


Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

UNMATCHED = "unmatched"
SITE = "asgi"

_BODIES = ("http.response.body", "http.response.zerocopysend")
# Middleware around middleware; more would be a cycle.
_MAX_DEPTH = 64


class Middleware:
    """
    Observes the HTTP requests of *app* and passes everything through unchanged.

    Websockets are passed through; so are requests without a running agent, and nested
    requests. When the application has shut down, what is left to push is pushed, for at
    most two seconds: servers may then end the process by a signal.
    """

    request: ClassVar[type[requests.ServedRequest]] = requests.ServedRequest
    """What a request is recorded as."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or the life of the application."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, _pushing_last(send))
            return
        if scope["type"] != "http" or recorder() is None or serving():
            await self.app(scope, receive, send)
            return
        route, waited = self._route(scope, receive)
        origin = requests.origin_of(
            route, "http", scope.get("method", ""), _headers(scope)
        )
        frozen = invocations.frozen(route)
        with self.request(route, origin, waited) as request:
            exchange = _Request(receive, send, request, origin, frozen=frozen)
            # If nothing is left to send, the request has ended, and no verdict counts.
            try:
                await self.app(scope, exchange.receive, exchange.send)
            except Exception:
                exchange.cut_short()
                raise
            except BaseException:  # as a rule because the client left
                exchange.leave()
                raise
            # The server says so, with a 500 if it still can.
            exchange.cut_short()

    def _route(self, scope: Scope, receive: Receive) -> tuple[str, float]:
        """Return the route, and for how long the request has waited."""
        indicators = recorder()
        if indicators is None or not indicators.guard.on(SITE):
            return UNMATCHED, 0.0
        waited = 0.0
        try:
            waited = indicators.routes.turns.note(receive)
            # A copy, for routers may take notes in it.
            template = _template(_routes(scope.get("app", self.app)), {**scope})
        except Exception:  # noqa: BLE001 - contained: the request is served
            indicators.guard.failed(SITE, theirs=True)
            return UNMATCHED, waited
        return template or UNMATCHED, waited


class _Request:
    """What server and application exchange for *request*; records how it ends."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        request: requests.OpenRequest,
        origin: RequestOrigin | None,
        *,
        frozen: bool,
    ) -> None:
        self._frozen = frozen
        self._origin = origin
        self._receive = receive
        self._send = send
        self._request = request
        self._all_said = False
        self._left = False

    async def receive(self) -> Message:
        """Forward messages from the client."""
        message = await self._receive()
        # After the last byte, servers call the end a disconnect as well.
        if message["type"] == "http.disconnect" and not self._all_said:
            self.leave()
        return message

    async def send(self, message: Message) -> None:
        """Forward messages from the application."""
        kind = message["type"]
        # Without receiving, an application does not learn that the client has left.
        server = getattr(self._receive, "__self__", None)
        left = getattr(server, "disconnected", False) is True
        if (left or self._hung_up(kind)) and not self._all_said:
            self.leave()
        # Of what is said to a client that has left, nothing is its outcome.
        if kind == "http.response.start" and not self._left:
            status = requests.http_status(message.get("status"))
            if self._origin is not None:
                self._origin.status = status
            self._request.respond(status)
        if kind == "http.response.pathsend" or (
            kind in _BODIES and not message.get("more_body", False)
        ):
            self._all_said = True
            # What is around us may end its span with the last byte.
            self._request.describe()
            if self._frozen:  # with the last byte
                self._request.end()
                await invocations.flush_in_thread()
        try:
            await self._send(message)
        except OSError:  # how servers may tell that the client has left
            self.leave()
            raise
        if self._all_said:
            self._request.end()

    def _hung_up(self, kind: str) -> bool:
        """Return whether the client had left, which a server held up does not know."""
        if kind != "http.response.start":
            return False
        age, indicators = now() - self._request.started, recorder()
        if age < LONG_TURN or indicators is None:
            return False
        try:
            _, left = arrival(self._receive) or (0.0, False)
        except Exception:  # noqa: BLE001 - contained: the request is served
            indicators.guard.failed(SITE, theirs=True)
            return False
        return left

    def cut_short(self) -> None:
        """Record that the application stopped responding early."""
        if self._left:
            return
        self._request.outcome = "error"
        origin = self._origin
        if origin is not None and origin.status is None:
            origin.status = requests.SERVER_ERROR  # what the server is about to say

    def leave(self) -> None:
        """Record that the client has left."""
        if not self._left:
            self._request.left = self._request.outcome is None
        self._left = True
        self._request.outcome = "client_error"


def _pushing_last(send: Send) -> Send:

    async def forward(message: Message) -> None:
        if message["type"] == "lifespan.shutdown.complete":
            await invocations.flush_in_thread()
        await send(message)

    return forward


def _headers(scope: Scope) -> Iterator[tuple[str, str]]:
    for name, value in scope.get("headers", ()):
        yield name.decode("latin-1"), value.decode("latin-1")


def _routes(app: Any) -> Iterable[Any]:
    """Return the routes of the application inside *app*, none where it has none."""
    for _ in range(_MAX_DEPTH):
        # A method of the application.
        app = getattr(app, "__self__", app)
        if (routes := getattr(app, "routes", None)) is not None:
            return list(routes)
        app = getattr(app, "app", None)
    return ()


def _template(routes: Iterable[Any], scope: Scope) -> str | None:
    partial: str | None = None
    for route in routes:
        match, child = route.matches(scope)
        if match.name == "FULL":
            return _of(route, {**scope, **child})
        if match.name == "PARTIAL" and partial is None:
            partial = _of(route, {**scope, **child})
    return partial


def _of(route: Any, scope: Scope) -> str | None:
    if included := getattr(route, "effective_route_contexts", None):
        # A router that a newer FastAPI includes; its routes know their prefix.
        return _template(
            (getattr(route, "starlette_route", None) or route for route in included()),
            scope,
        )
    template = str(getattr(route, "path_format", ""))
    inner = getattr(route, "routes", None)
    if not inner:
        # A foreign application below a prefix, static files for example.
        return template or None
    below = _template(inner, scope)
    return None if below is None else str(getattr(route, "path", "")) + below
