"""How the processes of each slot started and ended, from the records they leave."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon import life
from jaxmon.catalog import AGENT_CRASHES, AGENT_DIED, AGENT_STARTS
from jaxmon.exposition.families import Family, series


class Lives:
    """
    Exports the records of slots: also of those that no process holds, so that one
    killed between two polls is counted, with or without a successor.
    """

    def __init__(self) -> None:
        # A successor may hold a slot a moment before it has counted a crash; the
        # counter does not go back in between.
        self._counted: dict[str, tuple[int, int]] = {}

    def families(
        self, slots: Mapping[str, life.Slot], *, up: set[str], gone: set[str]
    ) -> list[Family]:
        """
        Return the families of all *slots*, some 10 µs each.

        Args:
            slots: the slots by worker.
            up: workers that have just responded.
            gone: workers on whose socket nothing listens.
        """
        starts, crashes = Family(AGENT_STARTS, []), Family(AGENT_CRASHES, [])
        died = Family(AGENT_DIED, [])
        counted = {}
        for worker, slot in slots.items():
            dead = slot.died
            if dead is None:  # the system does not say
                dead = worker in gone
            record = slot.record
            counted[worker] = number = self._number(worker, record, dead=dead)
            starts.samples.append((series(AGENT_STARTS, worker), number[0]))
            crashes.samples.append((series(AGENT_CRASHES, worker), number[1]))
            # An agent of a release without records may have the slot now.
            now = dead and worker not in up
            died.samples.append((series(AGENT_DIED, worker, record.loop), float(now)))
        self._counted = counted
        return [starts, crashes, died]

    def _number(
        self, worker: str, record: life.Record, *, dead: bool
    ) -> tuple[int, int]:
        """Return how many processes started and crashed."""
        starts, crashes = record.starts, record.crashes + dead
        before = self._counted.get(worker)
        if before is not None and before[0] <= starts:
            crashes = max(crashes, before[1])
        return starts, crashes
