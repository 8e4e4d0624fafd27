"""Compiles as events: those that a request waited for, and those that took long."""

from __future__ import annotations

from jaxmon.agent.compiles.compile import Compile
from jaxmon.agent.events import EventLog
from jaxmon.indicators.work import payers


SLOW_SECONDS = 1.0
"""What a compile that no request waits for must take to be an event."""


class CompileEvents:
    """Records compiles that are no recompiles: those have events of their own."""

    def __init__(self, events: EventLog) -> None:
        self._events = events

    def ended(self, compile_: Compile, *, looked_up: bool) -> None:
        """
        Record *compile_* if it took long, or if a request waited for it.

        Args:
            compile_: the compile, which has succeeded.
            looked_up: whether a persistent cache was checked.
        """
        ended, hit = compile_.end[0], compile_.hit
        seconds = ended - compile_.began
        # One that JAX did not report is noticed late, perhaps within another request.
        requests = sum(one.started < ended for one in payers())
        if not requests and seconds < SLOW_SECONDS:
            return
        how = "loaded from the persistent cache" if hit else "compiled"
        who = "" if not requests else f" while {_counted(requests)} waited"
        self._events.add(
            "compile",
            compile_.function.name,
            f"{how} in {seconds:.3g} s{who}",
            cache="hit" if hit else "miss" if looked_up else "off",
            seconds=seconds,
            requests=requests,
        )


def _counted(requests: int) -> str:
    return "a request" if requests == 1 else f"{requests} requests"
