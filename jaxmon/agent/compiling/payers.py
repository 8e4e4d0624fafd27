"""
Who pays for a compile: a request, and the time of an activity.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from jaxmon.agent.guard import Guard
from jaxmon.indicators.requests import mark_cold
from jaxmon.indicators.timeline import Mark, Timeline


SITE = "payers"


class Payers:
    """
    Charges what JAX does before a program can run to those who wait for it.

    Each method is called on the thread that does it.
    """

    def __init__(self, timeline: Timeline, guard: Guard) -> None:
        self._timeline = timeline
        self._guard = guard

    def tracing_begins(self) -> Callable[[], None] | None:
        """
        Return what to call when it ends, if anybody's time is charged.
        """
        mark = self._timeline.open_compile()
        return None if mark is None else functools.partial(self._close, mark)

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

    def _close(self, mark: Mark) -> None:
        try:
            self._timeline.close(mark)
        except Exception:  # noqa: BLE001 - contained: runs as JAX returns
            self._guard.failed(SITE)
