"""From the performance counter, by which jaxmon measures, to OpenTelemetry's time."""

from __future__ import annotations

from time import time_ns

from jaxmon.indicators.endings import now


_NS = 1_000_000_000


class Clock:
    """
    Converts times around its making.

    One for each trace: within it, spans nest exactly; the clocks drift apart by less
    than a millisecond in a second.
    """

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = time_ns() - round(now() * _NS)

    def unix_ns(self, moment: float) -> int:
        """Return *moment*, on the performance counter, in nanoseconds since 1970."""
        return self._offset + round(moment * _NS)
