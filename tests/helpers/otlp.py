"""Receivers of OTLP as processes, what came there, and spans that stay in memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from opentelemetry import trace
from opentelemetry.context import get_current
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from jaxmon.otel.traces.tracer import Tracer
from tests.helpers.indicators import Recorded, recording
from tests.helpers.processes import ROOT, clean_environ, until


if TYPE_CHECKING:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


Series = tuple[str, frozenset[tuple[str, str]]]

# Of github.com/prometheus/otlptranslator; the others are units that we do not have.
_UNITS = {
    "s": "seconds",
    "By": "bytes",
    "J": "joules",
    "W": "watts",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "": "",
}


class Request(NamedTuple):
    """One export: how it came, and what."""

    about: dict[str, Any]
    message: ExportMetricsServiceRequest

    def resource(self) -> dict[str, Any]:
        (one,) = self.message.resource_metrics
        return _values_of(one.resource.attributes)

    def metrics(self) -> dict[str, Metric]:
        found = [
            metric
            for resource in self.message.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        names = {metric.name: metric for metric in found}
        assert len(names) == len(found), "a metric came twice"
        return names

    def samples(self) -> dict[Series, float]:
        return samples(self.metrics().values())


class Receiver:
    """
    A running receiver.

    Attributes:
        grpc: its endpoint for gRPC.
        http: its endpoint for HTTP.
    """

    def __init__(self, directory: Path, ports: str, scheme: str) -> None:
        self._directory = directory
        grpc, http = ports.split()
        self.grpc = f"{scheme}://localhost:{grpc}"
        self.http = f"{scheme}://localhost:{http}"

    def environ(self, protocol: str = "http/protobuf", **more: str) -> dict[str, str]:
        """Return what a program needs to push here."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": (
                self.grpc if protocol == "grpc" else self.http
            ),
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            **more,
        }

    def requests(self, service: str = "") -> list[Request]:
        """Return what came so far, in order; only that of *service* if it is given."""
        found = [_read(path) for path in sorted(self._directory.glob("got-*"))]
        of = [one for one in found if one.resource().get("service.name") == service]
        return of if service else found

    def logs(self, service: str) -> list[dict[str, Any]]:
        """Return the log records that *service* has sent so far, in order."""
        found = []
        for path in sorted(self._directory.glob("logs-*")):
            body = path.read_bytes().partition(b"\n")[2]
            for one in ExportLogsServiceRequest.FromString(body).resource_logs:
                if _values_of(one.resource.attributes)["service.name"] == service:
                    records = [r for scope in one.scope_logs for r in scope.log_records]
                    found += [
                        {
                            "body": record.body.string_value,
                            "severity": record.severity_text,
                            "trace": record.trace_id.hex(),
                            "span": record.span_id.hex(),
                            **_values_of(record.attributes),
                        }
                        for record in records
                    ]
        return found

    def refused(self) -> int:
        """Return the number of refused requests."""
        return len(list(self._directory.glob("refused-*")))

    def trouble(self, what: str) -> None:
        """Refuse requests with *what* from now on, none if empty."""
        path = self._directory / "trouble"
        if what:
            path.write_text(what)
        else:
            path.unlink()


@contextmanager
def receiver(directory: Path, *pair: str) -> Iterator[Receiver]:
    """Run a receiver that notes in *directory*, with TLS if a *pair* is given."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.otlp", str(directory), *pair],
        cwd=ROOT,
        env=clean_environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            ports = process.stdout.readline()
            yield Receiver(directory, ports, "https" if pair else "http")
        finally:
            process.kill()


def translated(name: str, unit: str, *, counter: bool, gauge: bool) -> str:
    """Return the name that Prometheus gives a metric by default."""
    words = re.findall("[a-zA-Z0-9:]+", name)
    suffix = _UNITS[unit]
    if suffix and suffix not in words:
        words.append(suffix)
    for ending, applies in (("total", counter), ("ratio", gauge and unit == "1")):
        if applies:
            words = [*(word for word in words if word != ending), ending]
    return "_".join(words)


def samples(metrics: Any) -> dict[Series, float]:
    """Return *metrics* as the samples that Prometheus would store."""
    found: dict[Series, float] = {}
    for metric in metrics:
        kind = metric.WhichOneof("data")
        name = translated(
            metric.name,
            metric.unit,
            counter=kind == "sum" and metric.sum.is_monotonic,
            gauge=kind == "gauge",
        )
        for point in getattr(metric, kind).data_points:
            labels = {one.key: one.value.string_value for one in point.attributes}
            for suffix, more, value in _values(kind, point):
                series = (name + suffix, frozenset({**labels, **more}.items()))
                assert series not in found, f"{series} came twice"
                found[series] = value
    return found


def page_samples(text: str) -> dict[Series, float]:
    """Return the samples on a page as Prometheus would store them."""
    return {
        (one.name, frozenset((k, v) for k, v in one.labels.items() if v)): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def _values(kind: str, point: Any) -> Iterator[tuple[str, dict[str, str], float]]:
    if kind != "histogram":
        yield "", {}, getattr(point, point.WhichOneof("value"))
        return
    running = 0
    for bound, count in zip(
        [*point.explicit_bounds, inf], point.bucket_counts, strict=True
    ):
        running += count
        text = "+Inf" if bound == inf else str(float(bound))
        yield "_bucket", {"le": text}, running
    assert running == point.count
    yield "_sum", {}, point.sum
    yield "_count", {}, point.count


def _values_of(attributes: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
        for pair in attributes
    }


def _read(path: Path) -> Request:
    head, _, body = path.read_bytes().partition(b"\n")
    return Request(json.loads(head), ExportMetricsServiceRequest.FromString(body))


Span = dict[str, Any]


class TraceReceiver:
    """Receives traces while the block runs; see `tests.fakes.otlp_traces`."""

    def __init__(self, *, wait: float = 0) -> None:
        self.spans: list[Span] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.otlp_traces", str(wait)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.http, self.grpc = map(int, self._process.stdout.readline().split())
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.spans.append(json.loads(line))

    @property
    def environ(self) -> dict[str, str]:
        """What makes a program send its traces here."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.http}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }

    def of(self, trace: str) -> list[Span]:
        """Return the spans of *trace*, in the order of their beginning."""
        found = [one for one in self.spans if one["trace"] == trace]
        return sorted(found, key=lambda one: (one["began"], -one["ended"]))

    def wait_for(self, number: int) -> None:
        """Wait until there are *number* spans."""
        until(lambda: len(self.spans) >= number, f"{number} spans")


class Traced:
    """Markers whose spans end up here."""

    def __init__(self, recorded: Recorded, ratio: float = 1.0) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.recorded = recorded
        spans = self.provider.get_tracer("test")
        self.tracer = Tracer(recorded.failures, spans, None, ratio)
        recorded.tracer = self.tracer

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in that order."""
        return list(self._memory.get_finished_spans())

    @property
    def span(self) -> ReadableSpan:
        """The only one."""
        (found,) = self.spans
        return found


@contextmanager
def tracing(ratio: float = 1.0) -> Iterator[Traced]:
    """Trace what is marked while the block runs; nothing stays current."""
    before = get_current()
    with recording() as recorded:
        yield Traced(recorded, ratio)
        assert not recorded.failures.failures()
    assert get_current() is before


def ids(span: ReadableSpan) -> tuple[str, str | None]:
    """Return the ids of trace and parent."""
    assert span.context is not None
    parent = span.parent and trace.format_span_id(span.parent.span_id)
    return trace.format_trace_id(span.context.trace_id), parent
