"""``opentelemetry-instrument`` beside OpenTelemetry's instrumentation of FastAPI."""

import sys
from collections import Counter

import pytest

from tests.helpers.otlp import TraceReceiver, receiver
from tests.helpers.processes import ROOT, run_python, some


PROVIDERS = """
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
resource = Resource.create({"service.name": "mine", "of.program": "yes"})
provider = TracerProvider(resource=resource)
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
reader = PeriodicExportingMetricReader(OTLPMetricExporter())
metrics.set_meter_provider(MeterProvider([reader], resource))
metrics.get_meter("program").create_counter("of_the_program").add(3)
"""

SERVER = """
import threading, time, urllib.request
import fastapi, jax, numpy as np, uvicorn
from jaxmon.asgi import Middleware

app = fastapi.FastAPI()
app.add_middleware(Middleware)
model = jax.jit(lambda x: (x * 2).sum())

@app.get("/predict/{length}")
def predict(length: int) -> float:
    return float(model(np.ones(length, np.float32)))

config = uvicorn.Config(app, port=0, log_level="critical", access_log=False)
server = uvicorn.Server(config)
thread = threading.Thread(target=server.run)
thread.start()
while not server.started:
    time.sleep(0.01)
port = server.servers[0].sockets[0].getsockname()[1]
for length in (3, 3, 4):
    urllib.request.urlopen(f"http://127.0.0.1:{port}/predict/{length}").read()
server.should_exit = True
thread.join()
"""


@pytest.mark.parametrize("with_sdk", some([True, False]), ids=["its own SDK", "no SDK"])
def test_no_span_and_no_metric_is_doubled(tmp_path, with_sdk):
    """
    Each request has one server span and is counted once, an unchanged program is
    observed beside its own metrics, and its resource is ours.
    """
    script = tmp_path / "serve.py"
    script.write_text((PROVIDERS if with_sdk else "") + SERVER)
    command = (
        "import sys; sys.argv[0] = 'opentelemetry-instrument'\n"
        "from opentelemetry.instrumentation import auto_instrumentation as auto\n"
        "auto.run()"
    )
    directory = tmp_path / "metrics"
    directory.mkdir()
    with TraceReceiver() as traces, receiver(directory) as metrics:
        environ = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{traces.http}/v1",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{metrics.http}/v1/metrics",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_TRACES_SAMPLER": "always_on",
            "PYTHONPATH": str(ROOT),
        }
        run_python("-c", command, sys.executable, str(script), env=environ).ok()
        traces.wait_for(3 + 2 * 4)
        spans, requests = list(traces.spans), metrics.requests()
    server_spans = [one for one in spans if one["kind"] == 2]
    assert Counter(one["attributes"]["jaxmon.start"] for one in server_spans) == {
        "cold": 2,
        "warm": 1,
    }
    assert all(one["name"] == "GET /predict/{length}" for one in server_spans)
    ours = {one["scope"] == "jaxmon" for one in server_spans}
    assert ours == {not with_sdk}
    compiles = [one for one in spans if one["name"].startswith("jax.compile")]
    assert len(compiles) == 2
    cold = [one for one in server_spans if one["attributes"]["jaxmon.start"] == "cold"]
    assert {one["parent"] for one in compiles} == {one["id"] for one in cold}
    # No metric is in an export twice, or this raises. Ours has an export when the
    # application has shut down, and one at exit, both cumulative.
    exports = [one.metrics() for one in requests]
    theirs = {name for one in exports for name in one if "http.server." in name}
    assert bool(theirs) == with_sdk
    last = next(one for one in requests if "jaxmon_requests_total" in one.metrics())
    assert any("of_the_program" in one for one in exports) == with_sdk
    assert not any(
        "of_the_program" in o and "jaxmon_requests_total" in o for o in exports
    )
    assert ("of.program" in last.resource()) == with_sdk
    counted = sum(
        value
        for (name, _), value in last.samples().items()
        if name == "jaxmon_requests_total"
    )
    assert counted == 3
