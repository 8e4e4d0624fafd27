"""Providers of spans: the application's, or one of our own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from jaxmon.otel import exporters
from jaxmon.otel.environment import protocol
from jaxmon.otel.resource import of_variables, resource
from jaxmon.otel.traces import conventions
from jaxmon.otel.traces.batches import Batches
from jaxmon.otel.traces.tail import Tail
from jaxmon.version import version


if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("jaxmon")


def application_provider() -> TracerProvider | None:
    """Return the provider that the application has set, if it is the SDK's."""
    provider = trace.get_tracer_provider()
    return provider if isinstance(provider, TracerProvider) else None


def exporter(environ: Mapping[str, str]) -> SpanExporter:
    """
    Return the exporter that the environment asks for: OTLP over gRPC or HTTP, as for
    metrics. It reads its endpoint, headers and certificates from there.
    """
    problems: list[str] = []
    chosen = protocol(environ, "TRACES", problems)
    for problem in problems:
        log.warning("%s", problem)
    made: SpanExporter = exporters.exporter("TRACES", chosen, environ)
    return made


class OwnProvider:
    """
    A provider that is never set globally: only our spans go through it.

    Attributes:
        tail: which traces are kept.
        batches: what sends them.
    """

    def __init__(
        self,
        send: SpanExporter,
        ratio: float,
        run: Callable[[Callable[[], None]], Any],
        environ: Mapping[str, str],
        *,
        timer: bool = True,
    ) -> None:
        self.batches = Batches(send, run, timer=timer)
        self.tail = Tail(self.batches.put, ratio)
        # All are recorded; which are sent is decided when they have ended.
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=resource(environ, of_variables(environ)),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(self.tail)

    def tracer(self) -> trace.Tracer:
        """Return what makes spans."""
        return self._provider.get_tracer(conventions.SCOPE, version())

    def abandon(self) -> None:
        """Send nothing, in a forked child."""
        self.batches.abandon()
