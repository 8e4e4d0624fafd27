"""How long ago the program called a jitted function last, and how long that takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


_CHECKED_SECONDS = 1.0
# Shorter ones are not told apart.
_GAP = 2 * _CHECKED_SECONDS
# A pause is overdue if it is that long, and so many times as long as usual, once there
# were some calls.
_OVERDUE_SECONDS, _TIMES_AS_USUAL, _RHYTHM = 10.0, 3.0, 10


class Pace:
    """
    Follows the calls of the functions that all processes of a job call together. For
    one thread; read by any.

    Known to a second, which is how often it counts them.

    Args:
        calls: returns their number so far, 0 in a program that is no job.

    Attributes:
        calls: their number when it was counted last.
    """

    def __init__(self, calls: Callable[[], int]) -> None:
        self._count = calls
        self.calls = 0
        self._checked = self._since = 0.0
        self._compiles = False
        # The two longest. One alone may be the start, or a restored checkpoint.
        self._gaps = (0.0, 0.0)

    def check(self, now: float, *, compiles: bool) -> bool:
        """
        Count the calls, if that is due, and return whether there were some.

        Args:
            now: by the performance counter.
            compiles: whether the program is compiling: a pause for that says nothing
                about others.
        """
        self._compiles = self._compiles or compiles
        if now - self._checked < _CHECKED_SECONDS and self._checked:
            return False
        self._checked = now
        found = self._count()
        if found == self.calls and self._since:
            return False
        gap = now - self._since
        if self.calls and not self._compiles and gap >= _GAP:
            _, *longest = sorted((*self._gaps, gap))
            self._gaps = (longest[0], longest[1])
        self.calls, self._since, self._compiles = found, now, False
        return found > 0

    def overdue(self, now: float) -> float | None:
        """
        Return the seconds since the latest call, if that is longer than usual; else
        `None`.
        """
        age = now - self._since
        limit = max(_OVERDUE_SECONDS, _TIMES_AS_USUAL * self._gaps[0])
        return age if self.calls >= _RHYTHM and age >= limit else None

    def as_json(self, now: float) -> dict[str, Any]:
        """
        Return the seconds since the latest call, `None` without any, and those of a
        pause that is usual: the longest but one so far.
        """
        age = max(now - self._since, 0.0) if self.calls else None
        return {"age_seconds": age, "usual_seconds": self._gaps[0]}
