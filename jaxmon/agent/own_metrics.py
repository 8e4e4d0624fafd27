"""What an agent exports about itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxmon import catalog
from jaxmon.agent.adapters import Markers
from jaxmon.agent.context import Context
from jaxmon.agent.part import Part
from jaxmon.agent.serving import Serving
from jaxmon.clocks import monotonic
from jaxmon.exposition.families import Family, Histogram, gauge, histograms, series


if TYPE_CHECKING:
    from jaxmon.facts.process import Exports
    from jaxmon.otel.pusher import Pusher


# Exported from the start, even if the part is disabled by settings.
_DROPPED = ("event", "figure", "program", "sample", "span", "tracker", "value")


class OwnMetrics:
    """
    The metrics of an agent that are about itself.

    Args:
        context: shared state of its parts.
        parts: its parts.
        markers: that which has the program's markers.
        serving: its server.
        pusher: what pushes its metrics, if anything does.
        scrapes: how long scrapes take.
        began: when it started, in monotonic time.
    """

    def __init__(  # noqa: PLR0913 - all that an agent consists of
        self,
        context: Context,
        parts: Sequence[Part],
        markers: Markers,
        serving: Serving,
        pusher: Pusher | None,
        *,
        scrapes: Histogram,
        began: float,
    ) -> None:
        self._context = context
        self._parts = parts
        self._markers = markers
        self._serving = serving
        self._pusher = pusher
        self._scrapes = scrapes
        self._began = began

    def collect(self) -> list[Family]:
        """Return their families."""
        overflows = {
            "function": self._context.table.overflow.value,
            **self._markers.figures.overflow(),
        }
        return [
            Family(metric, [(series(metric, value), n) for value, n in found.items()])
            for metric, found in (
                (catalog.INTERNAL_ERRORS, self._context.guard.failures()),
                (catalog.LABEL_OVERFLOW, overflows),
                (catalog.DROPPED, self._dropped()),
            )
        ] + [
            histograms(catalog.SCRAPE_SECONDS, [self._scrapes]),
            # Whatever the program does to its clocks.
            gauge(catalog.COUNTING_SECONDS, max(0.0, monotonic() - self._began)),
            *(() if self._pusher is None else self._pusher.families()),
        ]

    def exports(self) -> Exports:
        """Return what did not arrive at receivers of OTLP, for the debug overview."""
        from jaxmon.facts.process import Exports  # noqa: PLC0415 - on request

        pushed = {} if self._pusher is None else self._pusher.explain()
        return Exports(**pushed, spans_dropped=self._dropped()["span"])

    def _dropped(self) -> dict[str, int]:
        dropped = {"connection": self._serving.dropped(), **dict.fromkeys(_DROPPED, 0)}
        for part in self._parts:
            dropped.update(part.dropped())
        return dropped
