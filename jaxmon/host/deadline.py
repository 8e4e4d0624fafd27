"""The time that jaxmon takes at most when a program ends."""

from __future__ import annotations

from collections.abc import Callable

from jaxmon.clocks import monotonic


SECONDS = 3.0

# What hangs must leave time for the others.
_SHARE = 2 / 3


class Deadline:
    """
    The *seconds* that all share who wait at the end of a program; it is passed to them.
    They pass between `begin` and `pause`: what else happens at exit takes none of them.
    """

    def __init__(
        self, seconds: float = SECONDS, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: float | None = None

    def begin(self) -> None:
        """Let time pass, if it does not yet."""
        if self._since is None:
            self._since = self._clock()

    def pause(self) -> None:
        """Let no time pass until `begin`."""
        self._seconds, self._since = self.left(), None

    def left(self) -> float:
        """Return the seconds that are left, 0 or more."""
        spent = 0.0 if self._since is None else self._clock() - self._since
        return max(self._seconds - spent, 0.0)

    def portion(self) -> float:
        """Return the seconds that the next one may wait: two thirds of what is left."""
        return self.left() * _SHARE
