"""
Requests of a WSGI application: Flask, or any other.

    from jaxmon.wsgi import WsgiMiddleware

    app.wsgi_app = WsgiMiddleware(app.wsgi_app)             # Flask
    app = WsgiMiddleware(app, route=lambda environ: ...)    # anything else

Each request is recorded as a `jaxmon.request`. Its route is the matched template
(``/items/<int:item>``), never the path; unmatched requests are ``unmatched``. It lasts
until the last byte of the response has been passed to the server. The status determines
the outcome: 4xx is ``client_error``, 5xx ``error``. An exception, also midway in the
response, is an ``error`` whatever the status; if the server stops reading the response
because the client has left, it is a ``client_error``.

A file that the application leaves to the server, with ``wsgi.file_wrapper``, is passed
on as it is: its request ends when the application returns.

With the setting ``serverless``, metrics and spans are pushed when the body ends: after
the response, the platform may freeze the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, ClassVar, Self, TypeAlias

from jaxmon.indicators import invocations
from jaxmon.indicators.recorder import CARRIED, recorder
from jaxmon.indicators.requests import (
    OpenRequest,
    ServedRequest,
    http_status,
    origin_of,
)
from jaxmon.indicators.work import serving


Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Any]
Application: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]
FindRoute: TypeAlias = Callable[[Environ], str | None]

UNMATCHED = "unmatched"
SITE = "wsgi"

# Servers need not read the body of these responses.
_WITHOUT_BODY = (204, 304)
# Middleware around middleware; more would be a cycle.
_MAX_DEPTH = 64
# Between Flask's method and the start of the response.
_FLASK_METHOD, _FLASK_MODULE, _MAX_FRAMES = "wsgi_app", "flask.app", 8


class WsgiMiddleware:
    """
    Observes the requests of *app* and passes everything through unchanged, also without
    an agent, and nested requests. *route* returns the template of a request's route, if
    any; Flask's are found without it.
    """

    request: ClassVar[type[ServedRequest]] = ServedRequest
    """What a request is recorded as."""

    def __init__(self, app: Application, *, route: FindRoute | None = None) -> None:
        self.app = app
        self._find_route = route

    def __call__(
        self, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Serve one request."""
        if recorder() is None or serving():
            return self.app(environ, start_response)
        route, method = self._route(environ), str(environ.get("REQUEST_METHOD", ""))
        origin = origin_of(route, "http", method, _headers(environ))
        frozen = invocations.frozen(route)
        exchange = _Exchange(self.request(route, origin), start_response, frozen=frozen)
        try:
            body = self.app(environ, exchange.start_response)
        except BaseException as error:
            exchange.fail(error)
            raise
        wrapper = environ.get("wsgi.file_wrapper")
        if isinstance(wrapper, type) and isinstance(body, wrapper):
            exchange.leave()
            return body
        exchange.whole = method == "HEAD"
        sized = _Sized if hasattr(type(body), "__len__") else _Body
        return sized(body, exchange)

    def _route(self, environ: Environ) -> str:
        indicators = recorder()
        if indicators is None or not indicators.guard.on(SITE):
            return UNMATCHED
        try:
            found = (self._find_route or self._flask_route)(environ)
        except Exception:  # noqa: BLE001 - contained: the request is served
            indicators.guard.failed(SITE, theirs=True)
            return UNMATCHED
        return found or UNMATCHED

    def _flask_route(self, environ: Environ) -> str | None:
        flask = _flask_inside(self.app)
        if flask is None:
            return None
        from werkzeug.exceptions import HTTPException, MethodNotAllowed  # noqa: PLC0415

        try:
            # Flask's own way, with its hosts and subdomains. Leaves `environ` alone.
            asked = flask.request_class(environ, populate_request=False, shallow=True)
            urls = flask.create_url_adapter(asked)
            try:
                rule, _ = urls.match(return_rule=True)
            except MethodNotAllowed as error:
                method = next(iter(error.valid_methods or ()))
                rule, _ = urls.match(method=method, return_rule=True)
        except HTTPException:  # not found, not this host, or another address
            return None
        return str(rule.rule)


class _Exchange:
    """One request and its response; *whole* if the server need not read the rest."""

    def __init__(
        self, block: ServedRequest, start_response: StartResponse, *, frozen: bool
    ) -> None:
        self._frozen = frozen
        self._start = start_response
        self._status = 0
        self.whole = False
        self._origin = block.origin
        self._block: ServedRequest | None = block
        self._open: OpenRequest = block.__enter__()

    def start_response(self, status: Any, *args: Any, **options: Any) -> Any:
        """Forward the start of the response, as it is."""
        self._status = http_status(status)
        self._open.respond(self._status)
        if self._open.outcome == "error" and (error := _caught_by_flask()) is not None:
            self._open.error = error
        if self._origin is not None:
            self._origin.status = self._status
        return self._start(status, *args, **options)

    def fail(self, error: BaseException) -> None:
        """End the request with *error*, which the application raised."""
        if isinstance(error, Exception):
            self._open.outcome = "error"
        self.leave(error)

    def end(self) -> None:
        """End the request: the server has the last byte."""
        self._open.end()
        self._push()

    def close(self, passed: int) -> None:
        """Leave the request, whose client got *passed* parts, and left if not all."""
        if self._block is None:
            return
        # Of a request that has ended, this changes nothing.
        if not self.whole and self._status not in _WITHOUT_BODY:
            self._open.outcome = "client_error"
            self._open.left = passed <= 1
        self.leave()

    def leave(self, error: BaseException | None = None) -> None:
        """Leave the block of the request. Idempotent."""
        block, self._block = self._block, None
        if block is not None:
            kind = None if error is None else type(error)
            block.__exit__(kind, error, None)
            self._push()

    def _push(self) -> None:
        # Once: the end of the body is followed by that of the block.
        frozen, self._frozen = self._frozen, False
        if frozen:
            invocations.flush()


class _Body:
    """The body of a response, whose end is noted."""

    def __init__(self, body: Iterable[bytes], exchange: _Exchange) -> None:
        self._all = body
        self._exchange = exchange
        self._next: Iterator[bytes] | None = None
        self._passed = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            if self._next is None:
                self._next = iter(self._all)
            part = next(self._next)
        except StopIteration:
            self._exchange.end()
            raise
        except BaseException as error:
            self._exchange.fail(error)
            raise
        self._passed += 1
        return part

    def close(self) -> None:
        """Close the application's body, as servers do in any case."""
        try:
            if (close := getattr(self._all, "close", None)) is not None:
                close()
        except BaseException as error:
            self._exchange.fail(error)
            raise
        self._exchange.close(self._passed)


class _Sized(_Body):
    """A body of known length, from which servers derive the ``Content-Length``."""

    def __len__(self) -> int:
        return len(self._all)  # type: ignore[arg-type]  # it has a length


def _headers(environ: Environ) -> Iterator[tuple[str, str]]:
    for name in CARRIED:
        if (value := environ.get(f"HTTP_{name.upper()}")) is not None:
            yield name, str(value)


def _caught_by_flask() -> Exception | None:
    """Return the exception for which Flask responds, a variable of its method."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - of the caller
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return None
        module = frame.f_globals.get("__name__")
        if frame.f_code.co_name == _FLASK_METHOD and module == _FLASK_MODULE:
            error = frame.f_locals.get("error")
            return error if isinstance(error, Exception) else None
        frame = frame.f_back
    return None


def _flask_inside(app: Any) -> Any:
    for _ in range(_MAX_DEPTH):
        # What Flask is given as `app.wsgi_app` wraps a method of it.
        app = getattr(app, "__self__", app)
        if hasattr(app, "url_map") and hasattr(app, "create_url_adapter"):
            return app
        inner = getattr(app, "app", None)
        if inner is None:
            inner = getattr(app, "wsgi_app", None)
        if inner is None:
            return None
        app = inner
    return None
