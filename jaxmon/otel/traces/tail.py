"""Which traces are kept, decided when their request has ended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import SpanContext, StatusCode

from jaxmon.otel.traces import conventions
from jaxmon.otel.traces.durations import Durations
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from opentelemetry.context import Context


_MOST_TRACES = 1024
_MOST_SPANS = 4096
_DECIDED = 1024


class Tail(SpanProcessor):
    """
    Keeps the traces of requests that were cold, delayed, failed, profiled, or slower
    than 99 % of their kind, and a fraction of the others; what is outside of requests
    as well.

    Children wait for their root, the first span of their trace in this process. At most
    4,096 spans in 1,024 traces wait; beyond, the oldest trace is dropped.

    Args:
        keep: takes the spans of a trace that is kept.
        ratio: fraction of healthy traces to keep. Chosen by the id of the trace, so
            that services that keep the same fraction keep the same traces.
    """

    def __init__(
        self, keep: Callable[[Sequence[ReadableSpan]], None], ratio: float
    ) -> None:
        self._keep = keep
        self._sampler = TraceIdRatioBased(ratio)
        self._waiting: OrderedDict[int, list[ReadableSpan]] = OrderedDict()
        self._count = 0
        self._decided: OrderedDict[int, bool] = OrderedDict()
        self._usual = Durations()
        # Reentrant: the garbage collector may end a request while it is held.
        self._lock = RLock()
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Number of spans dropped because too many were waiting."""
        return self._dropped

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is known yet."""

    def on_end(self, span: ReadableSpan) -> None:
        """Keep *span* until its root ends, or decide."""
        context = span.context
        if context is None:
            return
        with self._lock:
            if span.parent is not None and not span.parent.is_remote:
                kept = self._wait(context, span)
            else:
                kept = self._decide(context, span)
        if kept:
            self._keep(kept)

    def kept(self, trace_id: int) -> bool:
        """Return whether the trace was kept, of those decided lately."""
        return self._decided.get(trace_id, False)

    def shutdown(self) -> None:
        """Nothing is sent from here."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is sent from here."""
        del timeout_millis
        return True

    def _wait(self, context: SpanContext, span: ReadableSpan) -> list[ReadableSpan]:
        """Return what is to be sent now."""
        trace_id = context.trace_id
        if (decided := self._decided.get(trace_id)) is not None:
            return [span] if decided else []
        self._waiting.setdefault(trace_id, []).append(span)
        self._count += 1
        while len(self._waiting) > _MOST_TRACES or self._count > _MOST_SPANS:
            _, oldest = self._waiting.popitem(last=False)
            self._count -= len(oldest)
            self._dropped += len(oldest)
        return []

    def _decide(self, context: SpanContext, root: ReadableSpan) -> list[ReadableSpan]:
        trace_id = context.trace_id
        reason = self._reason(trace_id, root)
        children = self._waiting.pop(trace_id, [])
        self._count -= len(children)
        # A trace may have several requests of this process.
        self._decided[trace_id] = reason is not None or self.kept(trace_id)
        if len(self._decided) > _DECIDED:
            self._decided.popitem(last=False)
        return [] if reason is None else [*children, root]

    def _reason(self, trace_id: int, root: ReadableSpan) -> str | None:
        """Return why to keep a trace, `None` to drop it."""
        attributes = root.attributes or {}
        start = attributes.get(conventions.START)
        if start is None:
            return "no request"  # decided before its span was made
        duration = (root.end_time or 0) - (root.start_time or 0)
        slow = start == "warm" and self._usual.is_slow(root.name, duration)
        if start in ("cold", "delayed"):
            return str(start)
        if conventions.PROFILE in attributes:
            return "profiled"
        if root.status.status_code is StatusCode.ERROR:
            return "failed"
        if slow:
            return "slow"
        sampled = self._sampler.should_sample(None, trace_id, root.name)
        return "sampled" if sampled.decision is not Decision.DROP else None
