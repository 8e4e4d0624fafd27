"""
Requests of a gRPC server.

    from jaxmon.grpc import Interceptor, aio_interceptor

    grpc.server(pool, interceptors=[Interceptor()])
    grpc.aio.server(interceptors=[aio_interceptor()])

Each RPC is recorded as a `jaxmon.request`, from when a thread or task begins to serve
it until its last response has been returned. Its route is the method
(``/package.Service/Method``); RPCs of unknown methods are ``unmatched``.

The status determines the outcome. ``UNKNOWN``, ``DEADLINE_EXCEEDED``,
``UNIMPLEMENTED``, ``INTERNAL``, ``UNAVAILABLE`` and ``DATA_LOSS`` are an ``error``, as
in OpenTelemetry's semantic conventions; other statuses than ``OK`` are a
``client_error``. So is an RPC that the client cancels, or whose request cannot be
parsed. One that is not served before its deadline is an ``error``; so is one that the
client cancels less than 0.25 s before that, as clients do when it passes. A plain
function of an asynchronous server cannot learn that its client has cancelled; its
status counts.

A response of a stream that cannot be serialized is an ``error``. A single response is
serialized after the RPC has been recorded: if it cannot be, that RPC is a ``success``
here, although the client sees ``INTERNAL`` or ``UNKNOWN``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

import grpc

from jaxmon.indicators import requests
from jaxmon.indicators.recorder import RequestOrigin, recorder
from jaxmon.indicators.routes import Outcome
from jaxmon.indicators.work import serving


Behaviour: TypeAlias = Callable[[Any, Any], Any]

UNMATCHED = "unmatched"
SITE = "grpc"

_ERRORS = frozenset(
    (
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    )
)
# A client and the server see a deadline pass within so many seconds.
_MOMENT = 0.25
# The asynchronous server knows them by number.
_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
_BEHAVIOURS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Interceptor(grpc.ServerInterceptor):  # type: ignore[misc]  # untyped
    """Observes the RPCs of a `grpc.server`, and passes everything through unchanged."""

    def intercept_service(
        self, continuation: Callable[[Any], Any], details: Any
    ) -> Any:
        """Return the handler of one RPC."""
        return _observed(continuation(details), details)


def aio_interceptor() -> Any:
    """Return a `grpc.aio.ServerInterceptor` that does the same."""
    import grpc.aio  # noqa: PLC0415 - it starts a poller

    class AioInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # untyped
        """Observes RPCs."""

        async def intercept_service(
            self, continuation: Callable[[Any], Any], details: Any
        ) -> Any:
            """Return the handler of one RPC."""
            return _observed(await continuation(details), details)

    return AioInterceptor()


def _observed(handler: Any, details: Any) -> Any:
    """Return *handler*, whose RPC is recorded."""
    indicators = recorder()
    if indicators is None or not indicators.guard.on(SITE):
        return handler
    if handler is None:  # the server responds by itself
        _count(UNMATCHED, "client_error")
        return None
    try:
        return _replaced(handler, details)
    except Exception:  # noqa: BLE001 - contained: the RPC is served
        indicators.guard.failed(SITE)
        return handler


def _replaced(handler: Any, details: Any) -> Any:
    route: str = details.method
    origin = requests.origin_of(route, "grpc", "", _headers(details))
    opened: list[requests.OpenRequest] = []
    streams: bool = handler.response_streaming
    served: dict[str, Callable[..., Any]] = {
        name: _recorded(behaviour, route, origin, opened, streams=streams)
        for name in _BEHAVIOURS
        if (behaviour := getattr(handler, name)) is not None
        # Its arguments are different.
        and not hasattr(behaviour, "experimental_non_blocking")
    }
    if not served:
        return handler
    parse = handler.request_deserializer
    if parse is not None and not handler.request_streaming:
        served["request_deserializer"] = _parser(parse, route)
    if streams and handler.response_serializer is not None:
        served["response_serializer"] = _serializer(handler.response_serializer, opened)
    return handler._replace(**served)


def _serializer(
    serialize: Callable[[Any], bytes], opened: list[requests.OpenRequest]
) -> Callable[[Any], bytes]:

    def serialized(response: Any) -> bytes:
        try:
            return serialize(response)
        except Exception as error:
            for request in opened:
                request.end(error)
            raise

    return serialized


def _parser(parse: Callable[[bytes], Any], route: str) -> Callable[[bytes], Any]:

    def parsed(request: bytes) -> Any:
        try:
            return parse(request)
        except Exception:
            _count(route, "client_error")
            raise

    return parsed


def _recorded(
    behaviour: Behaviour,
    route: str,
    origin: RequestOrigin | None,
    opened: list[requests.OpenRequest],
    *,
    streams: bool,
) -> Behaviour:
    """Return *behaviour*, each call of which is a request; *opened* gets a stream's."""
    wrapper: Behaviour
    if inspect.iscoroutinefunction(behaviour):

        async def wrapper(request: Any, context: Any) -> Any:
            with _Rpc(context, origin):
                return await behaviour(request, context)

    elif inspect.isasyncgenfunction(behaviour):

        async def wrapper(request: Any, context: Any) -> Any:
            with _Rpc(context, origin, opened):
                responses = behaviour(request, context)
                try:
                    async for response in responses:
                        yield response
                finally:
                    await responses.aclose()

    elif streams:

        def wrapper(request: Any, context: Any) -> Any:
            context = _readable(context)
            with _Rpc(context, origin, opened):
                responses = behaviour(request, context)
                yield
                if not isinstance(context, _ReadableContext):
                    responses = _responses(responses)
                yield from responses

    else:

        def wrapper(request: Any, context: Any) -> Any:
            context = _readable(context)
            with _Rpc(context, origin):
                return behaviour(request, context)

    served = requests.ServedRequest(route, origin)(functools.wraps(behaviour)(wrapper))
    return _called(served) if inspect.isgeneratorfunction(wrapper) else served


def _responses(responses: Any) -> Iterator[Any]:
    """Yield *responses*; what is no iterator fails in the words of that server."""
    with contextlib.suppress(StopIteration):
        while True:
            yield next(responses)


def _called(served: Behaviour) -> Behaviour:
    """Return the generator function *served* so that calling it begins it."""

    @functools.wraps(served)
    def called(request: Any, context: Any) -> Any:
        responses = served(request, context)
        next(responses)
        return responses

    return called


def _readable(context: Any) -> Any:
    return context if hasattr(context, "code") else _ReadableContext(context)


class _ReadableContext:
    """A context without ``code``, on a thread: notes what the function sets."""

    def __init__(self, context: Any) -> None:
        self._context, self._code = context, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def code(self) -> Any:
        """Return the status that was set, 0 if none was."""
        return self._code

    def cancelled(self) -> bool:
        """Return `False`: that the client has left is not known here."""
        return False

    def set_code(self, code: Any) -> None:
        """Set the status."""
        self._code = code
        self._context.set_code(code)

    def abort(self, code: Any, *arguments: Any, **options: Any) -> Any:
        """End the RPC with a status."""
        self._code = code
        return self._context.abort(code, *arguments, **options)


class _Rpc(NamedTuple):
    """Records the outcome of the RPC that has *context*."""

    context: Any
    origin: RequestOrigin | None
    opened: list[requests.OpenRequest] | None = None

    def __enter__(self) -> None:
        if self.opened is not None and (request := serving()) is not None:
            self.opened.append(request)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        request, indicators = serving(), recorder()
        if request is None or indicators is None or not indicators.guard.on(SITE):
            return
        try:
            code = _code(self.context, error)
            request.outcome = _outcome(code)
            if request.outcome == "error":
                request.response = f"status {code.name}"
            if self.origin is not None:
                self.origin.status = code.name
        except Exception:  # noqa: BLE001 - contained: the RPC is served
            indicators.guard.failed(SITE)


def _code(context: Any, error: BaseException | None) -> grpc.StatusCode:
    left = context.time_remaining()
    if left is not None and left <= 0:
        return grpc.StatusCode.DEADLINE_EXCEEDED
    if _is_cancelled(error) or _has_left(context):
        # A client whose deadline passes cancels, often a moment before the server's.
        if left is not None and left < _MOMENT:
            return grpc.StatusCode.DEADLINE_EXCEEDED
        return grpc.StatusCode.CANCELLED
    # Until the behaviour sets one there is none; the asynchronous server has 0.
    code = context.code()
    if not code:
        return grpc.StatusCode.OK if error is None else grpc.StatusCode.UNKNOWN
    if isinstance(code, grpc.StatusCode):
        return code
    # A server with threads takes no numbers.
    numbers = {} if hasattr(context, "is_active") else _BY_NUMBER
    return numbers.get(code, grpc.StatusCode.UNKNOWN)


def _outcome(code: grpc.StatusCode) -> Outcome:
    if code is grpc.StatusCode.OK:
        return "success"
    return "error" if code in _ERRORS else "client_error"


def _headers(details: Any) -> Iterator[tuple[str, str]]:
    for name, value in details.invocation_metadata or ():
        if isinstance(value, str):
            yield name, value


def _is_cancelled(error: BaseException | None) -> bool:
    """Return whether *error* is how a task, or what it iterates over, is ended."""
    if not isinstance(error, asyncio.CancelledError):
        return isinstance(error, GeneratorExit)
    try:
        task = asyncio.current_task()
    except RuntimeError:  # on a thread
        return False
    # Not what the behaviour itself has cancelled, or raised.
    return task is not None and task.cancelling() > 0


def _has_left(context: Any) -> bool:
    active = getattr(context, "is_active", None)
    return bool(context.cancelled()) if active is None else not active()


def _count(route: str, outcome: Outcome) -> None:
    with requests.MarkedRequest(route) as request:
        request.outcome = outcome
