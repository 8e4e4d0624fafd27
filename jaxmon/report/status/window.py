"""The readings of the last minute, which the latest one is compared with."""

from __future__ import annotations

from collections import deque

from jaxmon.report.status.reading import Reading


MINUTE = 60.0
_MOST = 6
# Shorter differences are chance; longer ones are not of the last minute.
_LEAST, _OLDEST = 10.0, 180.0


class Window:
    """
    Keeps a few readings, so that there is one from about a minute ago.

    Args:
        seconds: how long ago.
    """

    def __init__(self, seconds: float = MINUTE) -> None:
        self._seconds = seconds
        self._kept: deque[Reading] = deque()

    def add(self, reading: Reading) -> None:
        """Keep *reading*, unless there is one from just before it."""
        kept = self._kept
        if kept and kept[-1].time > reading.time:  # the clock was set back
            kept.clear()
        if kept and reading.time - kept[-1].time < self._seconds / _MOST:
            return
        kept.append(reading.compared())
        # The first one is the youngest that is old enough.
        while len(kept) > 1 and reading.time - kept[1].time >= self._seconds:
            kept.popleft()

    def before(self, time: float) -> Reading | None:
        """Return the reading to compare with one of *time*, `None` without one."""
        first = self._kept[0] if self._kept else None
        if first is None or not _LEAST <= time - first.time < _OLDEST:
            return None
        return first
