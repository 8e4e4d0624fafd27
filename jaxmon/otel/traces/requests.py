"""Spans of requests, and of loops and their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from jaxmon.exposition.families import SpanIds
from jaxmon.indicators.endings import End, now
from jaxmon.indicators.recorder import FailureGuard, RequestOrigin
from jaxmon.otel.traces import spans as conventions
from jaxmon.otel.traces.provider import Durations
from jaxmon.otel.traces.spans import MOST, Child, Clock, Payer, contained
from jaxmon.threads import RLock


_W3C = TraceContextTextMapPropagator()


@dataclass(eq=False)
class RequestSpan:
    """
    The span of one request, the application's if it has one, else *ours*; *inside* is
    the context where it is current, *kept* decides at its end whether its trace is.
    """

    span: trace.Span
    _origin: RequestOrigin | None
    _spans: trace.Tracer
    guard: FailureGuard
    _: KW_ONLY
    ours: bool
    clock: Clock = field(default_factory=Clock)
    kept: Callable[[int], bool] | None = None
    _children: int = 0
    _outside: contexts.Context | None = None

    def __post_init__(self) -> None:
        self.inside = contexts.get_current()
        if self.ours:
            self.inside = trace.set_span_in_context(self.span, self.inside)

    @contained
    def enter(self) -> None:
        """Make the span current in this context."""
        if self.ours:
            self._outside = contexts.get_current()
            contexts.attach(self.inside)

    @contained
    def leave(self) -> None:
        """Make current what was current before."""
        outside, self._outside = self._outside, None
        if outside is not None:
            # No token, which could only be used in the context that it is from.
            contexts.attach(outside)

    def add(self, child: Child) -> None:
        """Make *child* a span below this one; the first 32."""
        self._children += 1
        if self._children <= MOST:
            emit(self._spans, child, self.inside, self.clock)

    @contained
    def profiled(self, profile: str) -> SpanIds | None:
        """Name the *profile* on the span; see `RequestTrace`."""
        self.span.set_attribute(conventions.PROFILE, profile)
        return span_ids(self.span)

    @contained
    def describe(self, outcome: str, start: str) -> None:
        """Say how the request ends: an application's span may end before."""
        if self.span.is_recording():
            self.span.set_attributes(
                {conventions.OUTCOME: outcome, conventions.START: start}
            )

    @contained
    def end(
        self, ended: float, outcome: str, start: str, error: BaseException | None
    ) -> SpanIds | None:
        """End our span at *ended*, on the performance counter; return kept ids."""
        span = self.span
        self.describe(outcome, start)
        if self.ours:
            span.set_attributes(conventions.response_attributes(self._origin))
            if outcome == "error":
                if error is not None:
                    span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(trace.StatusCode.ERROR)
            span.end(self.clock.unix_ns(ended))
        kept = self.kept is None or self.kept(span.get_span_context().trace_id)
        return span_ids(span) if kept else None


def request_span(
    tracer: trace.Tracer,
    route: str,
    origin: RequestOrigin | None,
    started: float,
    guard: FailureGuard,
) -> RequestSpan | None:
    """
    Return the span of a request, `None` if the application does not record its trace:
    the current server span is the request's, another its parent; else it begins a
    trace, or continues the client's.
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
    return RequestSpan(span, origin, tracer, guard, ours=True, clock=clock)


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


_MOST_OPEN = 64


@dataclass(eq=False)
class LoopSpans:
    """
    Makes the spans of steps of all loops; never raises. The number of a step chooses
    the healthy *ratio*, so that all processes keep the same; *settling* is called
    before a kept step ends; *open* are those with a span, in case they are left without
    a call.
    """

    spans: trace.Tracer
    guard: FailureGuard
    ratio: float
    settling: Sequence[Callable[[], None]]
    in_own_provider: bool
    usual: Durations = field(default_factory=Durations)
    open: dict[LoopSpan, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Reentrant: a signal handler may run a loop while it is held.
        self.lock = RLock()
        # The first call loads its implementation: not within a step.
        contexts.get_current()

    def is_sampled(self, number: int) -> bool:
        """Return whether step *number* is one of the healthy ones to keep."""
        return int((number + 1) * self.ratio) > int(number * self.ratio)

    def settle(self, *, all_of_them: bool = False) -> None:
        """End the spans of steps that were left without a call, as by ``break``."""
        for span in list(self.open):
            span.settle(even_if_running=all_of_them)


class LoopSpan:
    """The spans of the steps of one run of the loop *name*, one at a time."""

    def __init__(self, loops: LoopSpans, name: str, began: float, end: End) -> None:
        self.name = name
        self._loops = loops
        self._end = end
        self._context = contexts.get_current()
        self._inside = self._context
        self._number = 0
        self._began = began
        self._children: list[Child] = []
        self._failed: str | None = None
        self._span: trace.Span | None = None
        self._clock: Clock | None = None

    @property
    def guard(self) -> FailureGuard:
        """That of all loops."""
        return self._loops.guard

    @contained
    def finish(self, arrived: float, ended: float) -> SpanIds | None:
        """End the step; see `jaxmon.indicators.recorder.LoopTrace`."""
        loops = self._loops
        with loops.lock:
            kept = self._span is not None or self._failed is not None
            if not kept:
                duration = round((ended - self._began) * 1e9)
                kept = loops.usual.is_slow(self.name, duration)
            kept = kept or loops.is_sampled(self._number)
        if kept:
            for settle in loops.settling:  # what is pending may be in this step
                settle()
        with loops.lock:
            found = self._close(arrived, ended, "success") if kept else None
            self._began = ended
            self._number += 1
            self._children = []
            return found

    @contained
    def leave(self, left: float, error: BaseException | None) -> None:
        """Note that the loop has ended; see `jaxmon.indicators.recorder.LoopTrace`."""
        if error is not None:
            self.fail(error)
        with self._loops.lock:
            if self._span is not None or self._failed is not None:
                self._close(None if error is None else left, left, "left")

    def fail(self, error: BaseException) -> None:
        """Keep the step in progress, in which *error* was raised."""
        self._failed = type(error).__qualname__

    def settle(self, *, even_if_running: bool) -> None:
        """End the span of the step in progress if the loop was left."""
        with self._loops.lock:
            if self._span is not None and (self._end or even_if_running):
                left = self._end[0] if self._end else now()
                self._close(None, max(left, self._began), "left")

    def payer(self) -> Payer:
        """Return the step in progress, which is kept, to make children of it."""
        with self._loops.lock:
            self._open()
            return Payer(self._inside, (), self._clock or Clock())

    def place(self) -> StepPlace:
        """Return the step in progress, which is not kept for that."""
        return StepPlace(self, self._number)

    def add(self, number: int, child: Child) -> None:
        """Keep *child* until step *number* ends, if it has not; the first 32."""
        with self._loops.lock:
            if number == self._number and len(self._children) < MOST:
                self._children.append(child)

    def ids(self) -> SpanIds | None:
        """Return the ids of the span of the step in progress if that is kept."""
        return None if self._span is None else self._ids(self._span)

    def _open(self) -> trace.Span:
        span = self._span
        if span is None:
            clock = self._clock = Clock()
            loops = self._loops
            span = self._span = loops.spans.start_span(
                f"{conventions.STEP_NAME} {self.name}",
                self._context,
                trace.SpanKind.INTERNAL,
                {conventions.LOOP: self.name, conventions.STEP: self._number},
                start_time=clock.unix_ns(self._began),
            )
            self._inside = trace.set_span_in_context(span, self._context)
            loops.open[self] = None
            while len(loops.open) > _MOST_OPEN:
                loops.open.pop(next(iter(loops.open)), None)
        return span

    def _close(
        self, arrived: float | None, ended: float, outcome: str
    ) -> SpanIds | None:
        span = self._open()
        loops, clock = self._loops, self._clock or Clock()
        if arrived is not None:
            loop, name = {conventions.LOOP: self.name}, conventions.DATA_WAIT
            waited = Child(name, self._began, min(arrived, ended), loop)
            self._children.insert(0, waited)
        for child in self._children:
            emit(loops.spans, child, self._inside, clock)
        if self._failed is not None:
            span.set_attribute("error.type", self._failed)
            span.set_status(trace.StatusCode.ERROR)
            outcome = "error"
        span.set_attribute(conventions.OUTCOME, outcome)
        span.end(clock.unix_ns(ended))
        found = self._ids(span)
        loops.open.pop(self, None)
        self._span = self._clock = self._failed = None
        self._children = []
        self._inside = self._context
        return found

    def _ids(self, span: trace.Span) -> SpanIds | None:
        # Whether the trace of a request is kept is not known before that ends.
        inside = trace.get_current_span(self._context).get_span_context().is_valid
        return None if inside and self._loops.in_own_provider else span_ids(span)


class StepPlace(NamedTuple):
    """One step of a loop, as a `Place`."""

    loop: LoopSpan
    number: int

    def add(self, child: Child) -> None:
        """Make *child* a span below the step if that is kept."""
        self.loop.add(self.number, child)
