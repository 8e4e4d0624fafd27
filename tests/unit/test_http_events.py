"""HTTP requests as events: trace, status and outcome of an invocation."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import flask
import pytest
from opentelemetry.trace import SpanKind, StatusCode
from werkzeug.test import EnvironBuilder

import jaxmon
from tests.helpers.indicators import recording
from tests.helpers.otlp import Traced, ids, tracing


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def traced() -> Iterator[Traced]:
    """Return what is traced while the test runs."""
    with tracing() as found:
        yield found


def functions_request() -> flask.Request:
    """Return what Google's Functions Framework passes: Flask's request."""
    builder = EnvironBuilder(method="POST", headers=[("traceparent", HEADER)])
    return flask.Request(builder.get_environ())


EVENTS: dict[str, Any] = {
    "REST API": {"httpMethod": "GET", "headers": {"Traceparent": HEADER, "a": "b"}},
    "HTTP API, function URL": {"version": "2.0", "headers": {"traceparent": HEADER}},
    "load balancer": {"multiValueHeaders": {"traceparent": [HEADER], "a": ["b"]}},
    "null beside several": {
        "headers": None,
        "multiValueHeaders": {"traceparent": [HEADER]},
    },
    "Cloud Functions": functions_request(),
    "Azure": SimpleNamespace(headers={"traceparent": HEADER}),
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_an_invocation_is_below_the_clients_span(traced: Traced, event: Any) -> None:
    """Whatever a gateway makes of the headers, ``def`` or ``async def``."""

    @jaxmon.serverless(route="predict")
    def handler(event: Any, context: object) -> Any:
        return event

    @jaxmon.serverless(route="predict")
    async def later(event: Any, context: object) -> Any:
        return event

    assert handler(event, None) is event
    assert asyncio.run(later(event, None)) is event
    assert len(traced.spans) == 2
    for span in traced.spans:
        assert ids(span) == (TRACE, PARENT)
        assert (span.name, span.kind) == ("predict", SpanKind.SERVER)
        assert "http.request.method" not in (span.attributes or {})


def test_tracestate_is_carried(traced: Traced) -> None:
    """Also in several lines."""
    jaxmon.serverless(lambda event: event)(
        {"multiValueHeaders": {"traceparent": [HEADER], "TraceState": ["a=1", "b=2"]}}
    )
    context = traced.span.context
    assert context is not None
    assert dict(context.trace_state) == {"a": "1", "b": "2"}


class Hostile:
    """An event that fails when it is read."""

    @property
    def headers(self) -> Any:
        """Fail."""
        raise RuntimeError


OTHERS: list[tuple[Any, ...]] = [
    (),
    (None,),
    (7,),
    ("text",),
    ({},),
    ({"Records": [{"messageAttributes": {}}]},),
    ({"headers": None},),
    ({"headers": ["traceparent", HEADER]},),
    ({"headers": {"traceparent": "garbage"}},),
    ({"headers": {"traceparent": None, 7: HEADER}},),
    ({"headers": {"traceparent": f"{HEADER},{HEADER}"}},),
    ({"multiValueHeaders": {"traceparent": [HEADER, HEADER]}},),
]


def test_others_begin_a_trace(traced: Traced) -> None:
    """Events that are no HTTP request, or whose headers are garbage."""
    handler = jaxmon.serverless(lambda *args: args)
    for args in OTHERS:
        assert handler(*args) == args
        trace, parent = ids(traced.spans[-1])
        assert trace != TRACE
        assert parent is None
    assert len(traced.spans) == len(OTHERS)
    assert not traced.recorded.failures.failures()


@pytest.mark.contained
def test_an_event_that_fails_is_the_handlers_own() -> None:
    """Reading it fails; the handler gets it all the same."""
    event = Hostile()
    with recording() as recorded:
        traced = Traced(recorded)
        assert jaxmon.serverless(lambda event: event)(event) is event
        assert traced.span.parent is None
        assert recorded.failures.failures()


RESPONSES: list[tuple[Any, str, int | None]] = [
    ({"statusCode": 200, "body": ""}, "success", 200),
    ({"statusCode": "200"}, "success", 200),
    ({"statusCode": 404}, "client_error", 404),
    ({"statusCode": 503}, "error", 503),
    (flask.Response("no", 500), "error", 500),
    (("no", 429), "client_error", 429),
    (("no", 500, {}), "error", 500),
    (SimpleNamespace(status_code=502), "error", 502),
    (None, "success", None),
    ("text", "success", None),
    ({}, "success", None),
    (("text",), "success", None),
    ({"statusCode": 0}, "success", None),
    ({"statusCode": 7e9}, "success", None),
    ({"statusCode": "9" * 5000}, "success", None),
    ({"statusCode": None}, "success", None),
]


def test_the_status_determines_the_outcome(traced: Traced) -> None:
    """As of a server's; what says no status is a success."""
    handler = jaxmon.serverless(lambda _, response: response)
    for response, outcome, status in RESPONSES:
        before = traced.recorded.requests()
        assert handler({"headers": {}}, response) is response
        after = traced.recorded.requests()
        (kind,) = [one for one in after if after[one] != before.get(one)]
        assert kind[1] == outcome, response
        span = traced.spans[-1]
        attributes = span.attributes or {}
        assert attributes.get("http.response.status_code") == status
        assert (span.status.status_code is StatusCode.ERROR) == (outcome == "error")


def test_only_responses_to_http_have_a_status(traced: Traced) -> None:
    """What another handler returns is its own."""
    jaxmon.serverless(lambda event: event)({"statusCode": 500})
    (kind,) = traced.recorded.requests()
    assert kind[1] == "success"


def test_the_handler_may_know_better(traced: Traced) -> None:
    """An outcome that it has set stays."""

    @jaxmon.serverless
    def handler(event: object) -> object:
        with jaxmon.request("inside") as request:
            request.outcome = "client_error"
        return {"statusCode": 500}

    handler({"headers": {}})
    (kind,) = traced.recorded.requests()
    assert kind[1] == "client_error"
