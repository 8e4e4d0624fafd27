"""
Who pays for a compile: a request, and the time of an activity.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from jaxmon.indicators.requests import mark_cold
from jaxmon.indicators.timeline import Timeline


class Payers:
    """
    Charges what JAX does before a program can run to those who wait for it.

    Each method is called on the thread that does it.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def tracing_begins(self) -> Callable[[], None] | None:
        """
        Return what to call when it ends, if anybody's time is charged.
        """
        mark = self._timeline.open_compile()
        return None if mark is None else functools.partial(self._timeline.close, mark)

    def compile_begins(self) -> Callable[[], None] | None:
        """
        Return what to call when it ends, if anybody's time is charged.

        Loading from the persistent cache is a compile to those who wait.
        """
        mark_cold()
        return self.tracing_begins()

    def lowered(self, seconds: float) -> None:
        """
        Charge lowering, of which JAX tells the end only.
        """
        self._timeline.compiled(seconds)
