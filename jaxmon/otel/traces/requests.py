"""Spans of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from jaxmon.exposition.families import SpanIds
from jaxmon.indicators.recorder import FailureGuard, RequestOrigin
from jaxmon.otel.traces import spans as conventions
from jaxmon.otel.traces.spans import MOST, Child, Clock


SITE = "traces"

_W3C = TraceContextTextMapPropagator()


class RequestSpan:
    """
    The span of one request: the application's own if it has one, else ours.

    Attributes:
        span: the span, to which compiles are attributed.
        inside: the context in which it is current.
        clock: converts times of this request.
        kept: returns whether a trace is kept, if that is decided at its end.
    """

    __slots__ = (
        "_children",
        "_guard",
        "_origin",
        "_ours",
        "_outside",
        "_spans",
        "clock",
        "inside",
        "kept",
        "span",
    )

    def __init__(
        self,
        span: trace.Span,
        origin: RequestOrigin | None,
        spans: trace.Tracer,
        guard: FailureGuard,
        *,
        ours: bool,
    ) -> None:
        self.span = span
        self._spans = spans
        self._children = 0
        self.clock = Clock()
        self.inside = contexts.get_current()
        if ours:
            self.inside = trace.set_span_in_context(span, self.inside)
        self.kept: Callable[[int], bool] | None = None
        self._outside: contexts.Context | None = None
        self._ours = ours
        self._origin = origin
        self._guard = guard

    def enter(self) -> None:
        """Make the span current in this context."""
        try:
            if self._ours:
                self._outside = contexts.get_current()
                contexts.attach(self.inside)
        except Exception:  # noqa: BLE001 - contained: the request goes on
            self._guard.failed(SITE)

    def leave(self) -> None:
        """Make current what was current before."""
        outside, self._outside = self._outside, None
        try:
            if outside is not None:
                # No token, which could only be used in the context that it is from.
                contexts.attach(outside)
        except Exception:  # noqa: BLE001 - contained: the request goes on
            self._guard.failed(SITE)

    def add(self, child: Child) -> None:
        """Make *child* a span below this one; the first 32."""
        self._children += 1
        if self._children <= MOST:
            emit(self._spans, child, self.inside, self.clock)

    def profiled(self, profile: str) -> SpanIds | None:
        """Name the *profile* on the span; see `RequestTrace`."""
        try:
            self.span.set_attribute(conventions.PROFILE, profile)
            return span_ids(self.span)
        except Exception:  # noqa: BLE001 - contained: the profile goes on
            self._guard.failed(SITE)
            return None

    def describe(self, outcome: str, start: str) -> None:
        """
        Say on the span how the request is about to end: an application's server span
        may end before the request does.
        """
        try:
            if self.span.is_recording():
                self.span.set_attributes(
                    {conventions.OUTCOME: outcome, conventions.START: start}
                )
        except Exception:  # noqa: BLE001 - contained: the request goes on
            self._guard.failed(SITE)

    def end(
        self, ended: float, outcome: str, start: str, error: BaseException | None
    ) -> SpanIds | None:
        """
        End the span at *ended*, on the performance counter; return its ids if its trace
        is kept. The application ends its own.
        """
        try:
            span = self.span
            self.describe(outcome, start)
            if self._ours:
                span.set_attributes(conventions.response_attributes(self._origin))
                if outcome == "error":
                    kind = None if error is None else type(error).__qualname__
                    if kind is not None:
                        span.set_attribute("error.type", kind)
                    span.set_status(trace.StatusCode.ERROR)
                span.end(self.clock.unix_ns(ended))
            if self.kept is not None and not self.kept(
                span.get_span_context().trace_id
            ):
                return None
            return span_ids(span)
        except Exception:  # noqa: BLE001 - contained: the request goes on
            self._guard.failed(SITE)
            return None


def request_span(
    tracer: trace.Tracer,
    route: str,
    origin: RequestOrigin | None,
    started: float,
    guard: FailureGuard,
) -> RequestSpan | None:
    """
    Return the span of a request, `None` if the application does not record its trace.

    A server span that is current is the request's own. A request in another span is a
    child of it; any other begins a trace, or continues that of the client.
    """
    current = trace.get_current_span()
    context, kind = contexts.get_current(), trace.SpanKind.SERVER
    if current.get_span_context().is_valid:
        if not current.is_recording():
            return None
        if getattr(current, "kind", None) is trace.SpanKind.SERVER:
            current.set_attribute(conventions.ROUTE, route)
            return RequestSpan(current, origin, tracer, guard, ours=False)
        kind = trace.SpanKind.INTERNAL
    elif origin is not None:
        context = _W3C.extract(origin.headers, context)
    clock = Clock()
    span = tracer.start_span(
        conventions.request_name(route, origin),
        context,
        kind,
        conventions.request_attributes(route, origin),
        start_time=clock.unix_ns(started),
    )
    found = RequestSpan(span, origin, tracer, guard, ours=True)
    found.clock = clock
    return found


def emit(
    spans: trace.Tracer, child: Child, context: contexts.Context, clock: Clock
) -> None:
    """Make the span of *child* in *context*."""
    span = spans.start_span(
        child.name,
        context,
        trace.SpanKind.INTERNAL,
        child.attributes,
        start_time=clock.unix_ns(child.began),
    )
    if child.failed:
        span.set_status(trace.StatusCode.ERROR)
    span.end(clock.unix_ns(child.ended))


def span_ids(span: Any) -> SpanIds | None:
    """Return the ids of *span* if it is sampled."""
    context = span.get_span_context()
    if not context.is_valid or not context.trace_flags.sampled:
        return None
    return SpanIds(
        trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)
    )
