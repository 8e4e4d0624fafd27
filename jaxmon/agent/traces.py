"""
Traces: on if the program has an SDK's provider, or the environment names a receiver.

The application may set its provider at any time, so whether there is one is checked
when a route has its first request or a loop its first step, when something compiles,
and on each scrape.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from jaxmon.agent.context import Context, CountedError
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.part import Part
from jaxmon.exposition.families import Family
from jaxmon.indicators.figures import Indicators
from jaxmon.otel import is_named
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.otel.traces.tracer import Tracer


class TracePart(Part):
    """Decides where spans go, and gives markers and compiles their tracer."""

    name = "traces"

    def __init__(self, context: Context, indicators: Indicators) -> None:
        self._guard = context.guard
        self._observers = context.observers
        self._indicators = indicators
        self._asked = context.settings.traces
        self._timer = not context.settings.serverless
        self._tracer: Tracer | None = None
        self._on = False
        self._lost = 0
        # Reentrant: a signal handler may begin a request while this is held.
        self._lock = RLock()

    def attach(self, _: Hooks) -> None:
        """Look for the application's provider."""
        if self._asked is False:
            return
        if is_named(os.environ):
            from jaxmon.otel.environment import is_disabled  # noqa: PLC0415 - named

            if is_disabled(os.environ):
                return
        self._on = True
        self._indicators.routes.on_new.append(self.check)
        self._indicators.loops.on_new.append(self.check)
        self._observers.error.append(self._failed)
        self._observers.compiling.append(self.check)
        self.check()

    def start(self) -> None:
        """Make a provider of our own if the environment asks for one."""
        if not (self._asked or is_named(os.environ)):
            return
        from jaxmon.otel import environment as decision  # noqa: PLC0415 - named

        wanted = self._asked or decision.export_wanted(os.environ)
        if not self._on or not wanted or self._tracer is not None:
            return
        try:
            from jaxmon.otel.exporters import exporter  # noqa: PLC0415 - an extra
            from jaxmon.otel.traces.tracer import own_tracer  # noqa: PLC0415 - an extra
        except ImportError:
            return  # asked for by name, that is an error of `instrument`
        with self._guard.contained(self.name):  # no traces
            ratio = decision.healthy_ratio(os.environ)
            run = partial(self._guard.run, "traces_export")
            settling = self._observers.settling
            send = exporter("TRACES", os.environ)
            given = self._guard, send, os.environ, ratio, run
            self._use(own_tracer(*given, settling=settling, timer=self._timer))

    def check(self) -> None:
        """Use the provider of the application from when it has one."""
        tracer = self._tracer
        if not self._on or "opentelemetry.sdk.trace" not in sys.modules:
            return
        if tracer is not None and not tracer.is_own:
            return
        try:
            from jaxmon.otel.environment import RATIO  # noqa: PLC0415 - as it is used
            from jaxmon.otel.traces.tracer import application_tracer  # noqa: PLC0415

            # Its sampler, if the environment names one, decides about steps as well.
            named = os.environ.get("OTEL_TRACES_SAMPLER", "").strip()
            ratio = 1.0 if named else RATIO
            found = application_tracer(self._guard, ratio, self._observers.settling)
            if found is not None:
                self._use(found)
        except Exception:  # noqa: BLE001 - contained: no traces
            self._on = False
            self._guard.failed(self.name, theirs=True)

    def collect(self) -> Iterable[Family]:
        """Check, and end the steps that were left; spans are no metrics."""
        self.check()
        if self._tracer is not None:
            self._tracer.settle()
        return ()

    def flush(self, seconds: float) -> None:
        """Send the spans that have ended."""
        if (tracer := self._tracer) is not None:
            tracer.flush(seconds)

    def dropped(self) -> Mapping[str, int]:
        """Return the number of spans dropped."""
        tracer = self._tracer
        return {"span": self._lost + (0 if tracer is None else tracer.dropped())}

    def send(self) -> None:
        """Send the spans that there are."""
        if (tracer := self._tracer) is not None:
            tracer.send()

    def stop(self) -> None:
        """Send what is left, within the deadline, and make no more spans."""
        tracer = self._detach()
        if tracer is not None:
            tracer.stop(self._guard.deadline)

    def abandon(self) -> None:
        """Make no more spans."""
        tracer = self._detach()
        if tracer is not None:
            tracer.abandon()

    def _use(self, tracer: Tracer) -> None:
        with self._lock:
            before, self._tracer = self._tracer, tracer
            self._indicators.tracer = self._observers.tracer = tracer
            self._indicators.loops.attend()
        if before is not None:
            self._lost += before.dropped()
            before.end()  # not waited for: this thread is the program's

    def _failed(self, counted: CountedError) -> None:
        if self._tracer is not None:
            self._tracer.failed(counted.error)

    def _detach(self) -> Tracer | None:
        self._on = False
        indicators, observers = self._indicators, self._observers
        for calls in (
            indicators.routes.on_new,
            indicators.loops.on_new,
            observers.compiling,
        ):
            if self.check in calls:
                calls.remove(self.check)
        self._indicators.tracer = self._observers.tracer = None
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            self._lost += tracer.dropped()
        return tracer
