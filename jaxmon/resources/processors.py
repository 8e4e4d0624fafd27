"""How long the threads of this process waited for processors that others held."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Scheduling(NamedTuple):
    """
    Sums over the threads of this process that still exist.

    Attributes:
        ran: nanoseconds on a processor.
        waited: nanoseconds in which they could have run, but no processor was free.
    """

    ran: int
    waited: int

    def waiting(self, since: Scheduling | None = None) -> float | None:
        """
        Return the fraction of the time in which threads could run that they waited,
        `None` if they did neither.

        Args:
            since: an earlier reading; otherwise the whole life of the threads counts.
        """
        ran = max(self.ran - (since.ran if since else 0), 0)
        waited = max(self.waited - (since.waited if since else 0), 0)
        return waited / (ran + waited) if ran + waited else None


def scheduling(proc: Path = Path("/proc/self")) -> Scheduling | None:
    """
    Return how long the threads ran and waited, `None` if the kernel does not say.

    The first two numbers of ``schedstat``. Costs 10 µs for each thread.
    """
    ran = waited = 0
    try:
        for path in (proc / "task").glob("*/schedstat"):
            try:
                first, second, *_ = path.read_text().split()
            except (FileNotFoundError, ProcessLookupError):  # it has just exited
                continue
            ran, waited = ran + int(first), waited + int(second)
    except (OSError, ValueError):
        return None
    return Scheduling(ran, waited) if ran else None
