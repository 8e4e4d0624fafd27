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
parsed. One that is not served before its deadline is an ``error``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeAlias

import grpc

from jaxmon.indicators.recorder import recorder
from jaxmon.indicators.requests import Request, serving
from jaxmon.indicators.routes import Outcome


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
    """
    Return a `grpc.aio.ServerInterceptor` that does the same for a `grpc.aio.server`.
    """
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
        return _replaced(handler, details.method)
    except Exception:  # noqa: BLE001 - contained: the RPC is served
        indicators.guard.failed(SITE)
        return handler


def _replaced(handler: Any, route: str) -> Any:
    served: dict[str, Callable[..., Any]] = {
        name: _recorded(behaviour, route, streams=handler.response_streaming)
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
    return handler._replace(**served)


def _parser(parse: Callable[[bytes], Any], route: str) -> Callable[[bytes], Any]:
    """Return *parse*; a request that it rejects never reaches the behaviour."""

    def parsed(request: bytes) -> Any:
        try:
            return parse(request)
        except Exception:
            _count(route, "client_error")
            raise

    return parsed


def _recorded(behaviour: Behaviour, route: str, *, streams: bool) -> Behaviour:
    """
    Return *behaviour*, of the same kind, each call of which is a request.

    Args:
        behaviour: what serves the method.
        route: the method.
        streams: whether it returns an iterator of responses.
    """
    wrapper: Behaviour
    if inspect.iscoroutinefunction(behaviour):

        async def wrapper(request: Any, context: Any) -> Any:
            with _Rpc(context):
                return await behaviour(request, context)

    elif inspect.isasyncgenfunction(behaviour):

        async def wrapper(request: Any, context: Any) -> Any:
            with _Rpc(context):
                responses = behaviour(request, context)
                try:
                    async for one in responses:
                        yield one
                finally:
                    await responses.aclose()

    elif streams:

        def wrapper(request: Any, context: Any) -> Any:
            with _Rpc(context):
                yield from behaviour(request, context)

    else:

        def wrapper(request: Any, context: Any) -> Any:
            with _Rpc(context):
                return behaviour(request, context)

    return Request(route)(functools.wraps(behaviour)(wrapper))


class _Rpc:
    """Records the outcome of the RPC that has *context*."""

    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        pass

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
            request.outcome = _outcome(self._context, error)
        except Exception:  # noqa: BLE001 - contained: the RPC is served
            indicators.guard.failed(SITE)


def _outcome(context: Any, error: BaseException | None) -> Outcome:
    code, failed = context.code(), error is not None
    if isinstance(code, int):
        # Until the behaviour sets another, the asynchronous server has 0.
        code = _BY_NUMBER.get(code) if code or not failed else None
    left = context.time_remaining()
    if left is not None and left <= 0:
        return "error"
    # How a task, or what it iterates over, learns that the client has left.
    if _has_left(context) or (failed and not isinstance(error, Exception)):
        return "client_error"
    if code is None:
        return "error" if failed else "success"
    if code in _ERRORS:
        return "error"
    return "success" if code is grpc.StatusCode.OK else "client_error"


def _has_left(context: Any) -> bool:
    """Return whether the client has cancelled the RPC."""
    active = getattr(context, "is_active", None)
    return bool(context.cancelled()) if active is None else not active()


def _count(route: str, outcome: Outcome) -> None:
    """Count an RPC that no behaviour serves."""
    with Request(route) as request:
        request.outcome = outcome
