"""
The times of one program or loop in this run: what is usual, and what they are now.

They are slower only if most of the recent times are above nearly all of those before,
by a margin: so a few slow runs, or a function with two modes that were both seen
before, are no slowdown. The first times, of a program that warms up, do not count; if
it later becomes faster than what was usual, that is usual from then on.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from jaxmon.facts.spread import Distribution, distribution


ENOUGH = 24
"""Number of times that show what is usual, and as many that show what it is now."""

# Times of a program that is warming up.
_WARM_UP = 3


class Slowdown(NamedTuple):
    """
    A program or loop that is slower than before.

    Attributes:
        settled: what was usual.
        recent: what it is now.
        since: Unix time of the first of the slow times.
        calls: how often it had run by then.
    """

    settled: Distribution
    recent: Distribution
    since: float
    calls: float

    @property
    def ratio(self) -> float:
        """How many times as long it takes."""
        return self.recent.middle / max(self.settled.middle, 1e-9)


class Times:
    """
    The times of one program or loop.

    One thread adds, another may judge.

    Attributes:
        began: Unix time of the first.
        settled: what is usual, `None` until known.
        slowdown: how it is slower than that, `None` if it is not.
    """

    def __init__(self, now: float) -> None:
        self.began = now
        self.settled: Distribution | None = None
        self.slowdown: Slowdown | None = None
        self._seen = 0
        self._first: list[float] = []
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=ENOUGH)

    def add(self, now: float, seconds: float, calls: float = 0.0) -> None:
        """
        Add a time that was measured *now*, in Unix time, when it had run as often as
        *calls*. Costs a microsecond.
        """
        self._seen += 1
        if self._seen <= _WARM_UP:
            return
        if self.settled is None:
            self._first.append(seconds)
            if len(self._first) >= ENOUGH:
                self.settled, self._first = distribution(self._first), []
            return
        self._recent.append((now, seconds, calls))

    @property
    def recent(self) -> Distribution | None:
        """What it is now, `None` until known."""
        recent = list(self._recent)
        if len(recent) < ENOUGH:
            return None
        return distribution([seconds for _, seconds, _ in recent])

    def judge(self) -> Slowdown | None:
        """Return whether it is slower than before, until it is as fast again."""
        settled, recent = self.settled, self.recent
        if settled is None or recent is None:
            return None
        if settled.slower_than(recent):
            self.settled = settled = recent
        known = self.slowdown
        if recent.slower_than(settled):
            if known is None:
                known = Slowdown(settled, recent, *self._beginning(settled))
            self.slowdown = known._replace(settled=settled, recent=recent)
        elif known is not None and recent.middle > settled.limit:
            self.slowdown = known._replace(recent=recent)
        else:
            self.slowdown = None
        return self.slowdown

    def _beginning(self, settled: Distribution) -> tuple[float, float]:
        """
        Return when the slow times began, and after how many calls, as far as known.
        """
        found = (0.0, 0.0)
        for now, seconds, calls in reversed(self._recent):
            if seconds <= settled.limit and found != (0.0, 0.0):
                break
            found = (now, calls)
        return found
