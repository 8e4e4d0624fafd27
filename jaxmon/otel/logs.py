"""
Log records by OTLP: through the application's provider of loggers, or one of our own.

Called on one thread of ours; what a receiver that is slow or down does not take is
lost, and counted by the caller.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry import context, trace
from opentelemetry._logs import LogRecord, SeverityNumber, get_logger_provider
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor

from jaxmon.otel.exporters import exported, exporter
from jaxmon.otel.resource import resource
from jaxmon.version import version


_SEVERITIES = {
    logging.INFO: SeverityNumber.INFO,
    logging.WARNING: SeverityNumber.WARN,
    logging.ERROR: SeverityNumber.ERROR,
}


class Collected(LogRecordProcessor):
    """Keeps what an emitted record became, in whatever class this SDK has for it."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def on_emit(self, log_record: Any) -> None:
        """Keep it."""
        self.records.append(log_record)

    def shutdown(self) -> None:
        """Nothing is sent from here."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is sent from here."""
        del timeout_millis
        return True


class OwnLogs:
    """Our own provider. Not made at shutdown: the SDK starts threads for it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._exporter = exporter("LOGS", environ)
        self._collected = Collected()
        provider = LoggerProvider(resource(environ), shutdown_on_exit=False)
        provider.add_log_record_processor(self._collected)
        self._provider = provider

    def emit(self, record: logging.LogRecord) -> None:
        """Keep *record* until `export`."""
        _emit(self._provider, record)

    def export(self) -> bool:
        """Send what was kept; return whether it arrived, in ten seconds by default."""
        records, self._collected.records = self._collected.records, []
        if not records:
            return True
        return exported(self._exporter, records)

    def close(self) -> None:
        """Close the connection; from any thread, also during an export."""
        self._exporter.shutdown()


def emit_by_application(record: logging.LogRecord) -> bool:
    """Give *record* to the application's provider, unless its handlers do."""
    provider = get_logger_provider()
    if not isinstance(provider, LoggerProvider):
        return False
    if not _is_handled(logging.getLogger(record.name)):
        _emit(provider, record)
    return True


@contextlib.contextmanager
def within(trace_id: str, span_id: str) -> Iterator[None]:
    """Make the span with these ids current, for handlers that look for it."""
    ids = trace.SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False)
    span = trace.NonRecordingSpan(ids)
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        context.detach(token)


def _emit(provider: LoggerProvider, record: logging.LogRecord) -> None:
    fields: dict[str, Any] = vars(record)
    attributes = {
        name.replace("_", ".", 1): value
        for name, value in fields.items()
        if name.startswith("jaxmon_") and value not in (None, "")
    }
    provider.get_logger(record.name, version()).emit(
        LogRecord(
            timestamp=int(record.created * 1e9),
            context=context.get_current(),
            severity_text=record.levelname,
            severity_number=_SEVERITIES[record.levelno],
            body=record.getMessage(),
            attributes=attributes,
        )
    )


def _is_handled(logger: logging.Logger | None) -> bool:
    while logger is not None:
        for handler in logger.handlers:
            if type(handler).__module__.startswith("opentelemetry."):
                return True
        logger = logger.parent if logger.propagate else None
    return False
