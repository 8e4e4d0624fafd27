"""What failed requests failed with, and where."""

from __future__ import annotations

from collections.abc import Callable

from jaxmon.clocks import wall_time
from jaxmon.facts.marked import Failure
from jaxmon.threads import RLock


_MOST = 20
_LONGEST = 200

PlaceOf = Callable[[BaseException], str]
"""Returns the line of the program that an exception came from, ``""`` if unknown."""


class Failures:
    """
    The failed requests of a route, by exception and line: the first twenty kinds.

    Of an exception the class is kept, not the message, which may quote a request.
    """

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], tuple[int, float]] = {}
        self._lock = RLock()

    def add(self, error: BaseException | None, said: str, place_of: PlaceOf) -> None:
        """
        Count a request that failed.

        Args:
            error: what it raised, `None` if the program only set its outcome.
            said: how it responded, such as ``status 503``; empty if unknown.
            place_of: finds the line.
        """
        kind = said if error is None else type(error).__name__
        if error is not None and said:
            kind += f" ({said})"
        key = (kind[:_LONGEST], "" if error is None else place_of(error)[:_LONGEST])
        with self._lock:
            if key in self._counts or len(self._counts) < _MOST:
                count, _ = self._counts.get(key, (0, 0.0))
                self._counts[key] = count + 1, wall_time()

    def explain(self) -> tuple[Failure, ...]:
        """Return the kinds, the latest first."""
        with self._lock:
            found = list(self._counts.copy().items())
        found.sort(key=lambda item: -item[1][1])
        return tuple([Failure(*key, *counted) for key, counted in found])
