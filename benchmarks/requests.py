"""
What a request costs more with a middleware: jaxmon's without and with spans, that of
OpenTelemetry's ASGI instrumentation, and one with prometheus_client, around the same
application, in turns, in CPU time. No server, no exporter: spans are made, and dropped.

    python -m benchmarks requests
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from time import perf_counter, thread_time_ns
from typing import TYPE_CHECKING, Any

from benchmarks.rows import Row, added, agent


if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


ROUNDS = 40
REQUESTS = 200

App = Callable[..., Any]

SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "GET",
    "scheme": "http",
    "server": ("127.0.0.1", 8000),
    "client": ("127.0.0.1", 50000),
    "path": "/route10/7",
    "raw_path": b"/route10/7",
    "root_path": "",
    "query_string": b"",
    "headers": [(b"host", b"127.0.0.1:8000"), (b"user-agent", b"x")],
}


def measure() -> list[Row]:
    """Return microseconds that each adds to a request."""
    from opentelemetry import trace
    from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
    from opentelemetry.sdk.trace import TracerProvider

    from jaxmon.asgi import Middleware

    bare = _site()
    ours, counted = Middleware(bare), _prometheus_client(bare)
    with agent():
        rows = _rows(
            {"jaxmon.asgi.Middleware": ours, "prometheus_client": counted}, bare
        )
        with _own_provider():
            rows += _rows({"jaxmon with spans, own provider": ours}, bare)
    provider = TracerProvider(shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    theirs = OpenTelemetryMiddleware(bare, tracer_provider=provider)
    both = OpenTelemetryMiddleware(Middleware(bare), tracer_provider=provider)
    with agent(traces=True):
        rows += _rows(
            {
                "jaxmon with spans, the application's provider": ours,
                "OpenTelemetry's ASGI instrumentation": theirs,
                "that, and jaxmon's middleware inside": both,
            },
            bare,
        )
    return rows


def _rows(apps: dict[str, App], bare: App) -> list[Row]:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in apps}
    for _ in range(ROUNDS):
        for name, app in apps.items():
            times[name].append((_microseconds(app), _microseconds(bare)))
    return [
        added(name, "us", *zip(*pairs, strict=True)) for name, pairs in times.items()
    ]


def _microseconds(app: App) -> float:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Any) -> None:
        pass

    async def serve() -> float:
        started = thread_time_ns()
        for _ in repeat(None, REQUESTS):
            await app({**SCOPE}, receive, send)
        return (thread_time_ns() - started) / 1000 / REQUESTS

    return asyncio.run(serve())


def _site() -> App:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def respond(_: Any) -> PlainTextResponse:
        return PlainTextResponse("x")

    return Starlette(routes=[Route(f"/route{n}/{{item}}", respond) for n in range(20)])


@contextmanager
def _own_provider() -> Iterator[None]:
    """Have our own provider make the spans, and drop what it keeps."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    from jaxmon.indicators.recorder import recorder
    from jaxmon.otel.traces.tracer import own_tracer

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            del spans
            return SpanExportResult.SUCCESS

    indicators = recorder()
    if indicators is None:
        msg = "no agent is running"
        raise RuntimeError(msg)
    own = own_tracer(indicators.guard, Nowhere(), {}, 0.05, lambda work: work())
    indicators.tracer = own
    try:
        yield
    finally:
        indicators.tracer = None
        own.end()


def _prometheus_client(app: App) -> App:
    """Return *app* in a middleware as its users write it."""
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

    registry = CollectorRegistry()
    labels = ("method", "route", "status")
    seconds = Histogram("seconds", "Time.", labels, registry=registry)
    count = Counter("requests", "Requests.", labels, registry=registry)
    running = Gauge("running", "Running.", ("method",), registry=registry)

    async def middleware(scope: Any, receive: Any, send: Any) -> None:
        status = 500

        async def noting(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = perf_counter()
        running.labels(scope["method"]).inc()
        try:
            await app(scope, receive, noting)
        finally:
            running.labels(scope["method"]).dec()
            route = getattr(scope.get("route"), "path", scope["path"])
            which = scope["method"], route, str(status)
            seconds.labels(*which).observe(perf_counter() - began)
            count.labels(*which).inc()

    return middleware
