"""Makes spans for the markers and for the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from jaxmon.exposition.families import SpanIds
from jaxmon.indicators import recorder
from jaxmon.indicators.endings import End
from jaxmon.indicators.requests import OpenRequest
from jaxmon.indicators.steps import loop_trace
from jaxmon.indicators.work import payers, serving
from jaxmon.otel.resource import resource
from jaxmon.otel.traces import spans as conventions
from jaxmon.otel.traces.provider import (
    OwnSpans,
    SpanBatches,
    Tail,
    application_provider,
)
from jaxmon.otel.traces.requests import (
    LoopSpan,
    LoopSpans,
    RequestSpan,
    emit,
    request_span,
    span_ids,
)
from jaxmon.otel.traces.spans import Child, Clock, Compiled, Payer, Place, contained
from jaxmon.threads import Deadline
from jaxmon.version import version


class SpanPlace(NamedTuple):
    """A span of the application, as a `Place`."""

    spans: trace.Tracer
    context: contexts.Context
    clock: Clock

    def add(self, child: Child) -> None:
        """Make *child* a span below it."""
        emit(self.spans, child, self.context, self.clock)


class Tracer:
    """Makes spans, in the application's provider or ours; never raises."""

    def __init__(
        self,
        guard: recorder.FailureGuard,
        spans: trace.Tracer,
        provider: OwnSpans | None,
        ratio: float = 1.0,
        settling: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.guard = guard
        self._spans = spans
        self._provider = provider
        self._loops = LoopSpans(spans, guard, ratio, settling, provider is not None)

    @property
    def is_own(self) -> bool:
        """Whether spans go through a provider of our own."""
        return self._provider is not None

    @contained
    def request(
        self, route: str, origin: recorder.RequestOrigin | None, started: float
    ) -> recorder.RequestTrace | None:
        """Return the span of a request; see `indicators.recorder.RequestTracer`."""
        if not self.guard.on(conventions.SITE):
            return None
        found = request_span(self._spans, route, origin, started, self.guard)
        if found is not None and self._provider is not None:
            found.kept = self._provider.tail.kept
        return found

    @contained
    def loop(self, name: str, began: float, end: End) -> recorder.LoopTrace | None:
        """Return the spans of a run; see `jaxmon.indicators.recorder.RequestTracer`."""
        on = self.guard.on(conventions.SITE)
        return LoopSpan(self._loops, name, began, end) if on else None

    def failed(self, error: BaseException) -> None:
        """Note that *error* was raised here: in the step in progress, unless served."""
        if serving() is None and isinstance(loop := loop_trace(), LoopSpan):
            loop.fail(error)

    @contained
    def payer(self, requests: Sequence[OpenRequest]) -> Payer:
        """Return what this thread compiles for: requests, a step, or a span."""
        if not requests and isinstance(loop := loop_trace(), LoopSpan):
            return loop.payer()
        spans = [s for r in requests if isinstance(s := r.trace, RequestSpan)]
        if not spans:
            return Payer(contexts.get_current(), (), Clock())
        links = [trace.Link(span.span.get_span_context()) for span in spans[1:]]
        return Payer(spans[0].inside, links, spans[0].clock)

    @contained
    def place(self) -> Place | None:
        """Return the request, step or span that this thread is in, if recorded."""
        requests = payers()
        for request in requests:
            if isinstance(request.trace, RequestSpan):
                return request.trace
        if requests:
            return None
        if isinstance(loop := loop_trace(), LoopSpan):
            return loop.place()
        if trace.get_current_span().is_recording():
            return SpanPlace(self._spans, contexts.get_current(), Clock())
        return None

    @contained
    def add(self, child: Child, place: Place) -> None:
        """Make the span of *child* in *place*, unless there are too many there."""
        place.add(child)

    def below(self, request: recorder.RequestTrace, child: Child) -> None:
        """Make the span of *child* below that of *request*."""
        if isinstance(request, RequestSpan):
            self.add(child, request)

    @contained
    def kept(self, child: Child, payer: Payer) -> None:
        """Make the span of *child* for *payer*."""
        emit(self._spans, child, payer.context, payer.clock)

    def ids_of(self, requests: Sequence[OpenRequest]) -> SpanIds | None:
        """Return the ids of the first of *requests* with a span, else of the step."""
        for request in requests:
            if isinstance(request.trace, RequestSpan):
                return span_ids(request.trace.span)
        if not requests and isinstance(loop := loop_trace(), LoopSpan):
            return loop.ids()
        return None

    @contained
    def compiled(self, compiled: Compiled, payer: Payer) -> SpanIds | None:
        """Make the spans of a compile; return the ids of the outermost."""
        cache = "miss" if compiled.looked_up else "off"
        if compiled.outcome == "cache_hit":
            cache = "hit"
        unix_ns = payer.clock.unix_ns
        attributes: dict[str, str | bool] = {
            conventions.FUNCTION: compiled.function,
            conventions.OUTCOME: compiled.outcome,
            conventions.FIRST_CALL: compiled.first,
            conventions.CACHE: cache,
        }
        if compiled.cause is not None:
            attributes[conventions.CAUSE] = compiled.cause
        whole = self._spans.start_span(
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
            self._spans.start_span(
                conventions.PHASES[phase.name],
                inside,
                trace.SpanKind.INTERNAL,
                {conventions.FUNCTION: compiled.function},
                start_time=unix_ns(phase.began),
            ).end(unix_ns(phase.ended))
        whole.end(unix_ns(compiled.ended))
        return span_ids(whole)

    def dropped(self) -> int:
        """Return the number of spans dropped."""
        provider = self._provider
        return (
            0 if provider is None else provider.tail.dropped + provider.batches.dropped
        )

    def settle(self) -> None:
        """End the spans of steps that were left."""
        self._loops.settle()

    def flush(self, seconds: float) -> None:
        """Send what has ended, and wait at most so many *seconds* for that."""
        if self._provider is not None:
            self._provider.batches.push().wait(seconds)
        elif (provider := application_provider()) is not None:
            provider.force_flush(int(seconds * 1000))

    def send(self) -> None:
        """Begin to send what there is, with the steps in progress."""
        self._loops.settle(all_of_them=True)
        if self._provider is not None:
            self._provider.batches.push()

    def end(self) -> None:
        """Begin to send what is left, and stop then. Never blocks."""
        self._loops.settle(all_of_them=True)
        if self._provider is not None:
            self._provider.batches.end()

    def stop(self, deadline: Deadline) -> None:
        """Send what is left, within the *deadline*."""
        self._loops.settle(all_of_them=True)
        if self._provider is not None:
            self._provider.batches.stop(deadline)

    def abandon(self) -> None:
        """Send nothing, in a forked child."""
        if self._provider is not None:
            self._provider.batches.abandon()


def application_tracer(
    guard: recorder.FailureGuard, ratio: float, settling: Sequence[Callable[[], None]]
) -> Tracer | None:
    """Return a tracer of the application's provider, `None` if it has none."""
    provider = application_provider()
    if provider is None:
        return None
    spans = provider.get_tracer(conventions.SCOPE, version())
    return Tracer(guard, spans, None, ratio, settling)


def own_tracer(  # noqa: PLR0913 - what a tracer and its provider need
    guard: recorder.FailureGuard,
    send: Any,
    environ: Mapping[str, str],
    ratio: float,
    run: Callable[[Callable[[], None]], Any],
    *,
    settling: Sequence[Callable[[], None]] = (),
    timer: bool = True,
) -> Tracer:
    """Return a tracer that exports as *environ* says; without *timer*, when asked."""
    batches = SpanBatches(send, run, timer=timer)
    tail = Tail(batches.put, ratio)
    # All are recorded; which are sent is decided when they have ended.
    provider = TracerProvider(ALWAYS_ON, resource(environ), shutdown_on_exit=False)
    provider.add_span_processor(tail)
    spans = provider.get_tracer(conventions.SCOPE, version())
    return Tracer(guard, spans, OwnSpans(tail, batches), ratio, settling)
