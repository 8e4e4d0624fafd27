"""How many events of a kind are examined, so that very frequent ones cost little."""

from __future__ import annotations

from jaxmon.clocks import monotonic


# Passed without reading the clock. If a loop ends, so many events of another may pass.
_AT_ONCE = 15


class Allowance:
    """
    Chooses the events to examine: all, except in loops that make very many. There one
    stands for those that passed before it, so that sums are right on average.

    Args:
        burst: how many are examined at once, after a pause.
        rate: how many are examined in a second, at least.

    Attributes:
        passing: how many of the next events pass in any case.
    """

    __slots__ = ("_burst", "_left", "_passed", "_rate", "_since", "passing")

    def __init__(self, *, burst: int, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = float(burst)
        self._passed = 0
        self._since = monotonic()
        self.passing = 0

    def take(self) -> int:
        """
        Return how many events the present one stands for, 0 if it passes. Several
        threads may lose count of a few that pass.
        """
        if self.passing:
            self.passing -= 1
            return 0
        if self._left < 1:
            now = monotonic()
            earned = (now - self._since) * self._rate
            if earned < 1:
                self._passed += 1 + _AT_ONCE
                self.passing = _AT_ONCE
                return 0
            self._since, self._left = now, min(earned, self._burst)
        self._left -= 1
        return self.passed() + 1

    def passed(self) -> int:
        """Return how many events have passed since they were last asked for."""
        passing = self.passing
        passed, self._passed = self._passed - passing, passing
        return passed
