"""Attributes compile time to requests and activities."""

from __future__ import annotations

from jaxmon.indicators.endings import End
from jaxmon.indicators.requests import mark_cold
from jaxmon.indicators.timeline import Timeline


class CompileAttribution:
    """
    Attributes tracing, lowering and compiling to the waiting request and activity.

    Each method is called on the compiling thread.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def tracing_begins(self, end: End) -> bool:
        """
        Start attributing a trace that lasts until *end*; return whether there is a
        request or activity to attribute it to.
        """
        return self._timeline.open_compile(end) is not None

    def compile_begins(self, end: End) -> None:
        """
        Start attributing a compile that lasts until *end*.

        Loading from the persistent cache counts as a compile.
        """
        mark_cold()
        self.tracing_begins(end)

    def lowered(self, seconds: float) -> None:
        """Attribute lowering, of which JAX reports only the end."""
        self._timeline.compiled(seconds)
