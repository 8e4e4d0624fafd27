"""Exporters of OTLP whose receiver never ends its response."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import grpc
import pytest
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.trace import TracerProvider

from jaxmon.otel.environment import GRPC, HTTP
from jaxmon.otel.exporters import exporter
from jaxmon.otel.unobserved import exported
from tests.hostile_receivers import ANSWERS, hostile_receiver


SIGNALS = {
    "METRICS": MetricsData([]),
    "TRACES": [TracerProvider().get_tracer("t").start_span("s")],
    "LOGS": [],
}
# Of one response; the rest is what kernels buffer.
MOST = 2 << 20


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_response_is_limited_in_time_and_size(monkeypatch, answer):
    """
    Whatever a receiver sends back, all signals are done with it soon, read little of
    it, and go nowhere else; only a success is one.
    """
    with hostile_receiver(answer) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")

        def export(signal):
            made = exporter(signal, HTTP, {})
            try:
                return exported(made, SIGNALS[signal])
            finally:
                made.shutdown()

        pool = ThreadPoolExecutor(3)
        exports = [pool.submit(export, signal) for signal in SIGNALS]
        try:
            arrived = [one.result(timeout=60) for one in exports]
        finally:
            pool.shutdown(wait=False)
        arrives = "body" in answer or "chunks" in answer
        assert arrived == [arrives] * 3
        assert max(receiver.sent.values()) < MOST


@pytest.mark.parametrize("size", [1 << 12, 1 << 20])
def test_a_response_by_grpc_is_limited(monkeypatch, size):
    """Of a receiver that responds to one call without end, little is taken."""
    sent = []

    class Endless(grpc.GenericRpcHandler):  # type: ignore[misc] # no types
        def service(self, _):
            return grpc.stream_stream_rpc_method_handler(self.respond)

        def respond(self, *_):
            for body in repeat(bytes(size)):
                sent.append(size)
                yield body

    with ThreadPoolExecutor(3) as pool:
        server = grpc.server(pool, handlers=[Endless()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        try:
            for signal, data in SIGNALS.items():
                made = exporter(signal, GRPC, {})
                assert not exported(made, data)
                made.shutdown()
        finally:
            server.stop(None).wait()
    # One message and what it brings along for each attempt, of two at most.
    assert sum(sent) < 3 * 2 * max(size, MOST // 4) + MOST
