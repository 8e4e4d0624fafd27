"""How long the threads of this process wait for processors, in the course of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from jaxmon.resources.processors import Scheduling, scheduling


_SPACING_SECONDS = 1.0
_MOST = 1000


class Waits:
    """Fractions of the time in which threads could run that they waited."""

    def __init__(self) -> None:
        self._found: deque[tuple[float, float | None]] = deque(maxlen=_MOST)
        self._latest: Scheduling | None = None

    def read(self, now: float) -> None:
        """
        Read how long they waited since the last time, at the Unix time *now*, at most
        once a second: it costs 0.3 ms or more.
        """
        if self._found and now - self._found[-1][0] < _SPACING_SECONDS:
            return
        before, self._latest = self._latest, scheduling()
        if self._latest is not None and before is not None:
            self._found.append((now, self._latest.waiting(before)))

    def mean(self) -> float | None:
        """Return the mean, `None` if it is unknown."""
        return _mean([waited for _, waited in self._found])

    def around(self, moment: float) -> tuple[float | None, float | None]:
        """Return the means before and since the Unix time *moment*."""
        found = list(self._found)
        return (
            _mean([waited for time, waited in found if time < moment]),
            _mean([waited for time, waited in found if time >= moment]),
        )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
