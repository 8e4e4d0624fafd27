"""Whose trace a request belongs to: context that comes in, and context inside."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import jaxmon
from jaxmon.grpc import Interceptor
from jaxmon.indicators.work import named, payers
from jaxmon.otel.traces.spans import Compiled
from jaxmon.wsgi import WsgiMiddleware
from tests.helpers.otlp import Traced, ids, tracing
from tests.helpers.processes import until


PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


@pytest.fixture
def traced() -> Iterator[Traced]:
    """Return what is traced while the test runs; nothing stays current."""
    with tracing() as found:
        yield found


def current() -> int:
    """Return the id of the current span, 0 for none."""
    return trace.get_current_span().get_span_context().span_id


@pytest.mark.parametrize(
    "header", [None, "", "garbage", "00-" + "0" * 32 + "-" + "b" * 16 + "-01"]
)
def test_without_a_valid_parent_a_trace_begins(traced, header):
    """What a client sends as its context is not trusted to be one."""
    environ = {} if header is None else {"HTTP_TRACEPARENT": header}
    wsgi_call(environ)
    assert traced.span.parent is None


def wsgi_call(environ: dict[str, Any]) -> None:
    """Make a request to a WSGI application."""

    def app(_: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"a"]

    served = WsgiMiddleware(app, route=lambda _: "/items/{item}")
    body: Any = served({"REQUEST_METHOD": "GET", **environ}, lambda *_: None)
    assert list(body) == [b"a"]
    body.close()


def test_wsgi_continues_the_clients_trace(traced: Traced) -> None:
    """Its span is the parent."""
    wsgi_call({"HTTP_TRACEPARENT": PARENT, "HTTP_BAGGAGE": "a=b"})
    assert ids(traced.span) == ("a" * 32, "b" * 16)
    assert traced.span.name == "GET /items/{item}"
    assert (traced.span.attributes or {})["http.response.status_code"] == 200


def test_grpc_continues_the_clients_trace(traced: Traced) -> None:
    """Its span is the parent, also for a stream, in which the span is current."""
    inside: list[int] = []

    def stream(request: bytes, context: Any) -> Iterator[bytes]:
        inside.append(current())
        yield request
        context.set_code(grpc.StatusCode.UNAVAILABLE)

    handler = grpc.unary_stream_rpc_method_handler(stream)
    handlers = grpc.method_handlers_generic_handler("models.Predict", {"Run": handler})
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, interceptors=[Interceptor()])
        server.add_generic_rpc_handlers((handlers,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_stream("/models.Predict/Run")
            metadata = (("traceparent", PARENT),)
            with pytest.raises(grpc.RpcError):
                list(call(b"a", metadata=metadata))
            until(lambda: traced.spans, "the span")
        server.stop(None).wait()
    span = traced.span
    assert ids(span) == ("a" * 32, "b" * 16)
    assert span.context is not None
    assert inside == [span.context.span_id]
    assert span.name == "models.Predict/Run"
    assert span.status.status_code is trace.StatusCode.ERROR
    assert dict(span.attributes or {}) == {
        "jaxmon.route": "/models.Predict/Run",
        "jaxmon.outcome": "error",
        "jaxmon.start": "warm",
        "rpc.system.name": "grpc",
        "rpc.method": "models.Predict/Run",
        "rpc.response.status_code": "UNAVAILABLE",
    }


def test_a_generators_span_is_current_only_inside(traced: Traced) -> None:
    """Between its steps the consumer has its own context."""
    inside: list[int] = []

    @jaxmon.request("stream")
    def stream() -> Iterator[int]:
        for number in range(3):
            inside.append(current())
            yield number

    outside = [current() for _ in stream()]
    span = traced.span.context
    assert span is not None
    assert inside == [span.span_id] * 3
    assert outside == [0] * 3


def test_a_request_in_a_span_of_the_application_is_its_child(traced: Traced) -> None:
    """Not a server span; and none at all if the application does not record."""
    app = traced.provider.get_tracer("app")
    with app.start_as_current_span("work") as work, jaxmon.request("predict"):
        pass
    ours = traced.spans[0]
    assert ours.kind is trace.SpanKind.INTERNAL
    assert ids(ours)[1] == trace.format_span_id(work.get_span_context().span_id)
    silent = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False).get_tracer("app")
    with silent.start_as_current_span("work"), jaxmon.request("predict"):
        pass
    assert len(traced.spans) == 2


def test_a_compile_for_a_batch_links_its_requests(traced: Traced) -> None:
    """It is below the first request, and linked to the others."""
    with jaxmon.request("a") as one, ThreadPoolExecutor(1) as pool:

        def other() -> None:
            with jaxmon.request("b") as two:
                named([one, two])
                payer = traced.tracer.payer(payers())
                assert payer is not None
                fact = Compiled(
                    "f",
                    1.0,
                    2.0,
                    "compiled",
                    None,
                    first=True,
                    looked_up=False,
                    phases=(),
                )
                assert traced.tracer.compiled(fact, payer) is not None

        pool.submit(other).result()
    by_name = {span.name: span for span in traced.spans}
    compile_, a, b = by_name["jax.compile f"], by_name["a"], by_name["b"]
    assert a.context is not None
    assert b.context is not None
    assert compile_.parent is not None
    parent = compile_.parent.span_id
    linked = {link.context.span_id for link in compile_.links}
    assert {parent, *linked} == {a.context.span_id, b.context.span_id}
    assert len(compile_.links) == 1
