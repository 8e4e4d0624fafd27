"""Who pays for a compile: a request, and the time of an activity."""

from __future__ import annotations

from jaxmon.indicators.endings import End
from jaxmon.indicators.requests import mark_cold
from jaxmon.indicators.timeline import Timeline


class Payers:
    """
    Charges what JAX does before a program can run to those who wait for it.

    Each method is called on the thread that does it.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def tracing_begins(self, end: End) -> bool:
        """Charge what lasts until *end*; tell whether anybody's time is charged."""
        return self._timeline.open_compile(end) is not None

    def compile_begins(self, end: End) -> None:
        """
        Charge what lasts until *end*.

        Loading from the persistent cache is a compile to those who wait.
        """
        mark_cold()
        self.tracing_begins(end)

    def lowered(self, seconds: float) -> None:
        """Charge lowering, of which JAX tells the end only."""
        self._timeline.compiled(seconds)
