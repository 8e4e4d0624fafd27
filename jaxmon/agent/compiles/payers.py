"""Attributes compile time to requests and activities."""

from __future__ import annotations

from jaxmon.indicators.endings import End
from jaxmon.indicators.requests import mark_cold
from jaxmon.indicators.timeline import Timeline


class Payers:
    """
    Attributes tracing, lowering and compiling to the waiting request and activity.

    Each method is called on the thread that does it.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def tracing_begins(self, end: End) -> bool:
        """Charge what lasts until *end*; return whether anything is attributed."""
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
