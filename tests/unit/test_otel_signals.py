"""Metrics and traces of one process go to one receiver, under one name."""

import os
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpExporter,
)

from jaxmon.otel import exporters, pipes
from jaxmon.otel.environment import GRPC, HTTP, plan
from jaxmon.otel.traces.tracer import own_tracer


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
def test_both_speak_the_same_protocol(said, route, kind):
    """An endpoint alone is one port, which speaks one protocol."""
    environ = {**ENDPOINT, **said}
    made = exporters.exporter("TRACES", environ)
    made.shutdown()

    assert plan(environ).routes == (route,)
    assert type(made) is kind


def test_a_signal_may_have_a_protocol_of_its_own() -> None:
    """Its own variable takes precedence."""
    environ = {**ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": HTTP}
    made = exporters.exporter("TRACES", environ)
    made.shutdown()

    assert plan(environ).routes == (GRPC,)
    assert type(made) is HttpExporter


@pytest.mark.parametrize("name", ["", "models"])
def test_both_have_the_same_resource(name, guard, monkeypatch):
    """So a trace is found from a metric, also if nobody has named the service."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", name)
    environ = {**ENDPOINT, "OTEL_SERVICE_NAME": name, PROTOCOL: HTTP}
    send = exporters.exporter("TRACES", environ)
    own = own_tracer(guard, send, environ, 1.0, lambda body: body())
    request: Any = own.request("/", None, 0.0)
    span = request.span
    made = pipes.exporters(plan(environ), environ)
    (pipe,) = pipes.pipes(
        plan(environ),
        made,
        environ,
        started=0,
        failed=lambda _: None,
    )
    (metrics,) = pipe.converter.convert([], 1).resource_metrics
    pipe.exporter.shutdown()
    send.shutdown()

    assert span.resource.attributes == metrics.resource.attributes
    found = span.resource.attributes["service.name"]
    assert found == name or (not name and not found.startswith("unknown"))


_VARIABLES = (
    *("ENDPOINT", "TIMEOUT", "COMPRESSION", "INSECURE", "HEADERS", "CERTIFICATE"),
    *("CLIENT_KEY", "CLIENT_CERTIFICATE"),
)


@pytest.mark.parametrize("route", [GRPC, HTTP])
@pytest.mark.parametrize("signal", ["METRICS", "TRACES", "LOGS"])
def test_an_empty_variable_is_none(signal, route, monkeypatch, caplog):
    """As OpenTelemetry says; the SDK reads these itself, and takes some for a value."""
    usual = _described(exporters.exporter(signal, os.environ, route))
    for prefix in ("", f"{signal}_"):
        for name in _VARIABLES:
            with monkeypatch.context() as within:
                within.setenv(f"OTEL_EXPORTER_OTLP_{prefix}{name}", "")
                made = exporters.exporter(signal, os.environ, route)
            assert _described(made) == usual, prefix + name
    assert not caplog.messages


@pytest.mark.parametrize("route", [GRPC, HTTP])
@pytest.mark.parametrize("value", ["soon", "nan", "-1"])
def test_a_time_limit_that_is_none_is_named_and_ignored(
    route, value, monkeypatch, caplog
):
    """One sentence names the variable; that for all signals takes effect."""
    name = "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2.5")
    good = exporters.exporter("METRICS", os.environ, route)
    monkeypatch.setenv(name, value)
    bad = exporters.exporter("METRICS", os.environ, route)

    (said,) = caplog.messages
    assert said == f"{name}={value} is ignored; give seconds, 0.01 or more"
    assert [_described(one)["_timeout"] for one in (good, bad)] == [2.5, 2.5]


def _described(exporter: Any) -> dict[str, Any]:
    """Return where *exporter* sends, how, and for how long."""
    exporter.shutdown()
    inner = getattr(exporter, "_client", None)
    found = {**vars(exporter), **(vars(inner) if hasattr(inner, "_timeout") else {})}
    names = ("endpoint", "timeout", "insecure", "compression", "headers")
    return {f"_{name}": found.get(f"_{name}") for name in names}
