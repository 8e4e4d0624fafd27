"""Which communicators do not move from one reply of RAS to the next."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from jaxmon_exporter.collectors.nccl.report import Behind, Uneven


class Stuck(NamedTuple):
    """
    What does not move although its ranks are at different collectives.

    Args:
        communicators: how many.
        lagging: ranks that are behind, of the communicator with the most.
        behind: those of all of them that are named.
    """

    communicators: int
    lagging: int
    behind: tuple[Behind, ...]


class Progress:
    """Compares each reply with the one before."""

    def __init__(self) -> None:
        self._counts: dict[str, Hashable] = {}

    def update(self, uneven: Iterable[Uneven]) -> Stuck:
        """
        Return what is as *uneven* as in the last reply. Counts that differ are normal
        while they change: RAS reads the ranks one after the other.
        """
        found = {one.key: one for one in uneven}
        stuck = [
            one for key, one in found.items() if self._counts.get(key) == one.counts
        ]
        self._counts = {key: one.counts for key, one in found.items()}
        return Stuck(
            communicators=len(stuck),
            lagging=max((one.lagging for one in stuck), default=0),
            behind=tuple(rank for one in stuck for rank in one.behind),
        )
