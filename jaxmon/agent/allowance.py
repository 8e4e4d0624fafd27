"""How many events of a kind are examined, so that very frequent ones cost little."""

from __future__ import annotations

from jaxmon.clocks import monotonic


_MODULUS = 16


class Allowance:
    """
    Chooses the events to examine: all, except in loops that make very many. There one
    stands for those that passed before it, so that sums are right on average.

    Args:
        burst: how many are examined at once, after a pause.
        rate: how many are examined in a second, at least.
        passes: how many pass between two, on average, if there are more.

    Attributes:
        passing: how many of the next events pass in any case.
    """

    __slots__ = (
        "_burst",
        "_left",
        "_passed",
        "_passes",
        "_rate",
        "_since",
        "_turn",
        "passing",
    )

    def __init__(self, *, burst: int, rate: float, passes: int) -> None:
        self._burst = burst
        self._rate = rate
        self._passes = passes
        self._left = float(burst)
        self._passed = self._turn = 0
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
        passed, self._passed = self._passed, 0
        if self._left >= 1:
            self._left -= 1
            return passed + 1
        now = monotonic()
        earned = (now - self._since) * self._rate
        if earned >= 1:
            self._since, self._left = now, min(earned, self._burst) - 1
            return passed + 1
        # Not evenly: in a loop over a few arrays it would always be the same of them.
        self._turn = turn = (5 * self._turn + 3) % _MODULUS
        pause = self._passes // 2 + self._passes * turn // (_MODULUS - 1)
        self._passed = self.passing = pause
        return passed + 1

    def passed(self) -> int:
        """Return how many events have passed that no other stands for yet, once."""
        passing = self.passing
        passed, self._passed = self._passed - passing, passing
        return passed
