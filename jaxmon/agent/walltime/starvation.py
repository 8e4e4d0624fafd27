"""Whether the thread that shows what goes on is kept from running by others."""

from __future__ import annotations

from jaxmon.agent.walltime.tasks import Task


_EVERY_SECONDS = 5.0


class Starvation:
    """
    Follows how much of its time a thread waits for a processor; 20 µs every 5 s.

    Attributes:
        ratio: of the latest 5 s, `None` if the kernel does not say.
        seconds: so far, as far as the kernel says.
    """

    def __init__(self) -> None:
        self.ratio: float | None = None
        self.seconds = 0.0
        self._number = 0
        self._read = 0.0
        self._waited: float | None = None

    def check(self, task: Task | None, now: float) -> None:
        """Read the times of *task*, if that is due at *now*, by a monotonic clock."""
        number = 0 if task is None else task.number
        passed = now - self._read
        if number == self._number and passed < _EVERY_SECONDS:
            return
        waited = None if task is None else task.waited()
        before = self._waited if number == self._number else None
        if waited is not None and before is not None:
            fresh = min(max(waited - before, 0.0), passed)
            self.ratio = fresh / passed
            self.seconds += fresh
        else:
            self.ratio = None
        self._number, self._read, self._waited = number, now, waited
