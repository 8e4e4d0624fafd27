"""Times of collectives by NCCL Inspector, as a sidecar reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """
    Collectives of some seconds: how many were launched and recorded, and of these the
    sum of their seconds and of the squares.
    """

    launched: float = 0.0
    recorded: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        """Return how long one took."""
        return self.seconds / self.recorded if self.recorded > 0 else 0.0

    @property
    def variance(self) -> float:
        """Return the variance of that mean."""
        if self.recorded <= 0:
            return 0.0
        spread = self.squares / self.recorded - self.mean * self.mean
        return max(spread, 0.0) / self.recorded


@dataclass(frozen=True, slots=True)
class Timed:
    """
    A rank of a communicator, and its collectives of one kind and size class.

    Attributes:
        host: of its process *pid*.
        communicator: the same on all ranks.
        rank: of the communicator, which has *ranks*.
        windows: the newest first.
    """

    host: str = ""
    pid: int = -1
    communicator: str = ""
    rank: int = 0
    ranks: int = 0
    collective: str = ""
    size: str = ""
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Inspected:
    """
    What Inspector recorded on a host.

    Attributes:
        age_seconds: of all that.
        seconds: of each window, the newest first.
        ranks: those of its processes.
    """

    age_seconds: float = 0.0
    seconds: tuple[float, ...] = ()
    ranks: tuple[Timed, ...] = ()
