"""Whether a process is ready for requests."""

from __future__ import annotations

from jaxmon.threads import RLock


class Readiness:
    """
    Whether the announced warm-up has run. Thread-safe.

    Args:
        expected: whether one is announced.
    """

    def __init__(self, *, expected: bool) -> None:
        self._lock = RLock()
        self._awaited = expected
        self._running = self._done = self._total = 0

    @property
    def reason(self) -> str | None:
        """Why the process is not ready; `None` if it is."""
        with self._lock:
            if self._running:
                return f"warming up: {self._done} of {self._total} signatures"
            return "the warm-up has not begun" if self._awaited else None

    def begin(self, signatures: int) -> None:
        """Record that a warm-up of so many *signatures* begins."""
        with self._lock:
            self._running += 1
            self._total += signatures

    def advance(self) -> None:
        """Record that one signature was tried."""
        with self._lock:
            self._done += 1

    def end(self) -> None:
        """Record that a warm-up has ended, however it did."""
        with self._lock:
            self._running -= 1
            self._awaited = False
