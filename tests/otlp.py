"""A receiver of OTLP as a process, and what came, as Prometheus would name it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.support import ROOT, clean_environ


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
    """
    Return the name that Prometheus gives a metric by default
    (UnderscoreEscapingWithSuffixes).
    """
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
