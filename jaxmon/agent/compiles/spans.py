"""Collects what the span of a compile needs, on the thread that compiles."""

from __future__ import annotations

import threading
from collections import deque

from jaxmon.agent.compiles.misses import Compile
from jaxmon.agent.context import Observers
from jaxmon.exposition.families import SpanIds
from jaxmon.indicators.endings import now
from jaxmon.indicators.work import payers
from jaxmon.otel.traces.spans import Compiled, CompilePhase, CompileSpan


# Phases that no compile follows, as of `lower`, are forgotten.
_MOST_PHASES = 64


class _Thread(threading.local):
    def __init__(self) -> None:
        self.phases: deque[CompilePhase] = deque(maxlen=_MOST_PHASES)


class CompileSpans:
    """Makes the spans of compiles, if there is a tracer; else it costs nothing."""

    def __init__(self, observers: Observers) -> None:
        self._observers = observers
        self._thread = _Thread()

    def phase(self, name: str, seconds: float) -> SpanIds | None:
        """
        Note a phase that just ended; return the ids of the span that waits for it.
        """
        tracer = self._observers.tracer
        if tracer is None:
            return None
        ended = now()
        self._thread.phases.append(CompilePhase(name, ended - seconds, ended))
        return tracer.ids_of(payers())

    def begins(self, compile_: Compile) -> None:
        """Note that *compile_* starts."""
        tracer, phases = self._observers.tracer, self._thread.phases
        if tracer is None:
            return
        payer = tracer.payer(payers())
        # JAX measures by another clock; a phase is no longer than the call.
        began = compile_.began
        mine = [phase._replace(began=max(phase.began, began)) for phase in phases]
        mine = [phase for phase in mine if phase.began < phase.ended]
        phases.clear()
        first = not any(tally.value for tally in compile_.function.compiles.values())
        if payer is not None:
            compile_.span = CompileSpan(payer, began, first, mine)

    def retrieved(self, compile_: Compile, seconds: float) -> SpanIds | None:
        """Note that *compile_* has read the persistent cache, for *seconds*."""
        tracer, span, ended = self._observers.tracer, compile_.span, now()
        if tracer is None or span is None:
            return None
        span.phases.append(CompilePhase("cache_retrieval", ended - seconds, ended))
        return tracer.ids_of(payers())

    def ended(
        self, compile_: Compile, outcome: str, cause: str | None, *, looked_up: bool
    ) -> SpanIds | None:
        """Make the spans of *compile_*; return the ids of the outermost."""
        tracer, span = self._observers.tracer, compile_.span
        if tracer is None or span is None:
            return None
        compile_.span = None
        name, ended = compile_.function.name, compile_.end[0]
        if outcome != "cache_hit":
            span.phases.append(CompilePhase("backend_compile", compile_.started, ended))
        compiled = Compiled(
            name, span.began, ended, outcome, cause, span.first, looked_up, span.phases
        )
        return tracer.compiled(compiled, span.payer)
