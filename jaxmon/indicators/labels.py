"""Bounded sets of user-chosen label values."""

from __future__ import annotations

from jaxmon.threads import RLock


OTHER = "other"


class Labels:
    """Admits the first *limit* values; the rest share ``other``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._admitted: set[str] = set()
        # Reentrant, as all locks of this package: a signal handler or the garbage
        # collector may end a request, a step or an activity while we hold one.
        self._lock = RLock()
        self.overflow = 0

    def admit(self, value: str) -> str:
        """Return *value*, or ``other`` if the limit is reached, which is counted."""
        if value in self._admitted or value == OTHER:
            return value
        with self._lock:
            if value in self._admitted:
                return value
            if len(self._admitted) >= self._limit:
                self.overflow += 1
                return OTHER
            self._admitted.add(value)
            return value
