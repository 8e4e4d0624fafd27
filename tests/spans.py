"""Markers whose spans end up in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import get_current
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from jaxmon.otel.traces.tracer import Tracer
from tests.indicators import Recorded, recording


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
