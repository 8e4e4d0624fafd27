"""Metrics and traces of one process go to one receiver, under one name."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpExporter,
)

from jaxmon.catalog.values import SERVED
from jaxmon.otel import pipes
from jaxmon.otel.environment import GRPC, HTTP, plan
from jaxmon.otel.traces.provider import OwnProvider, exporter


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"


@pytest.mark.parametrize(
    ("said", "route", "kind"),
    [
        ({}, GRPC, GrpcExporter),
        ({PROTOCOL: HTTP}, HTTP, HttpExporter),
        ({PROTOCOL: GRPC}, GRPC, GrpcExporter),
        ({PROTOCOL: "http/json"}, GRPC, GrpcExporter),
    ],
)
def test_both_speak_the_same_protocol(
    said: dict[str, str], route: str, kind: type[Any]
) -> None:
    """An endpoint alone is one port, which speaks one protocol."""
    environ = {**ENDPOINT, **said}
    made = exporter(environ)
    made.shutdown()

    assert plan(environ).routes == (route,)
    assert type(made) is kind


def test_a_signal_may_have_a_protocol_of_its_own() -> None:
    """Its own variable takes precedence."""
    environ = {**ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": HTTP}
    made = exporter(environ)
    made.shutdown()

    assert plan(environ).routes == (GRPC,)
    assert type(made) is HttpExporter


@pytest.mark.parametrize("name", ["", "models"])
def test_both_have_the_same_resource(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a trace is found from a metric, also if nobody has named the service."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", name)
    environ = {**ENDPOINT, "OTEL_SERVICE_NAME": name, PROTOCOL: HTTP}
    send = exporter(environ)
    own = OwnProvider(send, 1.0, lambda body: body(), environ)
    span: Any = own.tracer().start_span("request")
    made = pipes.parts(plan(environ), environ)
    (pipe,) = pipes.pipes(
        plan(environ),
        made,
        environ,
        started=0,
        own=True,
        name=None,
        names=SERVED,
        failed=lambda _: None,
    )
    (metrics,) = pipe._converter.convert([], 1).resource_metrics
    pipe.close()
    send.shutdown()

    assert span.resource.attributes == metrics.resource.attributes
    found = span.resource.attributes["service.name"]
    assert found == name or (not name and not found.startswith("unknown"))
