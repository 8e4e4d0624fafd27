"""Spans of compiles and their phases."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry import context as contexts
from opentelemetry import trace

from jaxmon.exposition.families import SpanIds
from jaxmon.otel.traces import spans as conventions
from jaxmon.otel.traces.requests import RequestSpan, span_ids
from jaxmon.otel.traces.spans import Clock, Compiled, Payer


def payer_of(spans: Sequence[RequestSpan]) -> Payer:
    """Return who a compile on this thread is for: the requests of *spans*, if any."""
    if not spans:
        return Payer(contexts.get_current(), (), Clock())
    first = spans[0]
    links = [trace.Link(one.span.get_span_context()) for one in spans[1:]]
    return Payer(first.inside, links, first.clock)


def emit(tracer: trace.Tracer, compiled: Compiled, payer: Payer) -> SpanIds | None:
    """
    Make the spans of *compiled*, at the times at which its phases took place; return
    the ids of the outermost.
    """
    unix_ns = payer.clock.unix_ns
    attributes: dict[str, str | bool] = {
        conventions.FUNCTION: compiled.function,
        conventions.OUTCOME: compiled.outcome,
        conventions.FIRST_CALL: compiled.first,
        conventions.CACHE: _cache(compiled),
    }
    if compiled.cause is not None:
        attributes[conventions.CAUSE] = compiled.cause
    whole = tracer.start_span(
        f"{conventions.COMPILE} {compiled.function}",
        payer.context,
        trace.SpanKind.INTERNAL,
        attributes,
        payer.links,
        unix_ns(compiled.began),
    )
    if compiled.outcome == "failed":
        whole.set_status(trace.StatusCode.ERROR)
    inside = trace.set_span_in_context(whole, payer.context)
    for phase in compiled.phases:
        tracer.start_span(
            conventions.PHASES[phase.name],
            inside,
            trace.SpanKind.INTERNAL,
            {conventions.FUNCTION: compiled.function},
            start_time=unix_ns(phase.began),
        ).end(unix_ns(phase.ended))
    whole.end(unix_ns(compiled.ended))
    return span_ids(whole)


def _cache(compiled: Compiled) -> str:
    if compiled.outcome == "cache_hit":
        return "hit"
    return "miss" if compiled.looked_up else "off"
