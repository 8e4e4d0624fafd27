"""How the depth of a queue has changed, from the depths that were read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from jaxmon.clocks import monotonic
from jaxmon.facts.marked import Queue


WITHIN_SECONDS = 600.0
"""Depths older than this are dropped."""

_APART_SECONDS = 5.0
_LEAST = 2


class DepthHistory:
    """
    The depths of one queue over the last ten minutes, at most one every five seconds.

    It knows what was read: at each scrape, by each `jaxmon explain`, and whatever the
    program has set.
    """

    __slots__ = ("_clock", "_kept", "depth", "maximum")

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: deque[tuple[float, int]] = deque(
            maxlen=int(WITHIN_SECONDS / _APART_SECONDS)
        )
        self.depth = self.maximum = 0

    def note(self, depth: int) -> None:
        """Note that the depth is *depth* now."""
        self.depth = depth
        self.maximum = max(self.maximum, depth)
        time = self._clock()
        if not self._kept or time - self._kept[-1][0] >= _APART_SECONDS:
            self._kept.append((time, depth))

    def explain(self) -> Queue:
        """
        Return the depth now, the greatest ever, and the growth since the oldest depth
        kept, `None` if there is only one; and the lowest and the highest in each
        third of the depths kept, if there are enough.
        """
        time = self._clock()
        kept = [one for one in list(self._kept) if time - one[0] <= WITHIN_SECONDS]
        over = time - kept[0][0] if kept else 0.0
        thirds = _thirds([depth for _, depth in kept])
        known = over >= _APART_SECONDS
        return Queue(
            depth=self.depth,
            maximum=self.maximum,
            growth=self.depth - kept[0][1] if known else None,
            growth_seconds=over if known else 0.0,
            lows=tuple([min(part) for part in thirds]),
            highs=tuple([max(part) for part in thirds]),
        )


def _thirds(depths: list[int]) -> list[list[int]]:
    """Return the thirds of *depths*; empty if there are too few."""
    third = len(depths) // 3
    if third < _LEAST:
        return []
    return [depths[:third], depths[third:-third], depths[-third:]]
