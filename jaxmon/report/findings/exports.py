"""
Findings on metrics and spans that do not arrive. The constants are the thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.process import Snapshot
from jaxmon.formats.durations import seconds as seconds_in
from jaxmon.formats.layout import counted, duration
from jaxmon.report.findings.finding import Finding


_REASON = (
    "The program's log has the reason under `opentelemetry.exporter`. Check that a "
    "receiver runs at OTEL_EXPORTER_OTLP_ENDPOINT, and that its port is for "
    "OTEL_EXPORTER_OTLP_PROTOCOL: usually 4317 for gRPC, 4318 for HTTP"
)


def metrics(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect that no export of metrics has arrived for minutes."""
    exports, limits = snapshot.exports, snapshot.limits
    if exports.failed_in_a_row < limits.exports_failed:
        return
    if exports.failing_seconds < seconds_in(limits.exports_failed_for):
        return
    yield Finding(
        "export",
        "metrics",
        f"No export of metrics by OTLP has arrived for "
        f"{duration(exports.failing_seconds)}: the last "
        f"{exports.failed_in_a_row:,} failed.",
        (),
        f"{_REASON}. If nothing is meant to be pushed, set JAXMON_OTLP=false.",
    )


def spans(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect that spans are dropped again and again, not only once."""
    dropped = snapshot.exports.spans_dropped
    limits = snapshot.limits
    windows = snapshot.process.observed_seconds / seconds_in(limits.export_window)
    if dropped < limits.spans_dropped * max(windows, 1.0):
        return
    yield Finding(
        "spans",
        "",
        f"{counted(dropped, 'span')} did not reach a receiver of traces and "
        "were dropped.",
        (),
        f"{_REASON}. Prometheus takes no spans: set OTEL_TRACES_EXPORTER=none. If "
        "there are too many, lower OTEL_TRACES_SAMPLER_ARG.",
    )
