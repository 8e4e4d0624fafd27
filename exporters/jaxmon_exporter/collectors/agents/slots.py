"""
What outlives the processes of a slot: how they started and ended, from the records that
they leave, and what they counted, which is served for a while and added to what their
successors count. The kernel's part of a record, the exit status, is added to it here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jaxmon.catalog import (
    AGENT_CRASHES,
    AGENT_DIED,
    AGENT_ENDED_SECONDS,
    AGENT_STARTS,
    COUNTING_SECONDS,
)
from jaxmon.clocks import monotonic
from jaxmon.errors import PageError
from jaxmon.exposition.add import added
from jaxmon.exposition.families import Family, by_label, gauge, series
from jaxmon.facts import endings
from jaxmon.facts.ending import ProcessEnd
from jaxmon.facts.endings import SlotEnds
from jaxmon.host.formats.schema import NewerSchemaError
from jaxmon.host.resources import hung


_KINDS = ("counter", "histogram")
_MOST_FOLLOWED = 256


class SlotSeries:
    """
    Exports the records of slots: also of those that no process holds, so that one
    killed between two polls is counted, with or without a successor.
    """

    def __init__(self) -> None:
        # A successor may hold a slot a moment before it has counted a crash; the
        # counter does not go back in between.
        self._counted: dict[str, tuple[int, int]] = {}

    def families(
        self, slots: Mapping[str, SlotEnds], *, up: set[str], gone: set[str]
    ) -> list[Family]:
        """
        Return the families of all *slots*, some 10 µs each.

        Args:
            slots: the slots by worker.
            up: workers that have just responded.
            gone: workers on whose socket nothing listens.
        """
        died: dict[tuple[str, str], float] = {}
        counted = {}
        for worker, slot in slots.items():
            dead = slot.died
            if dead is None:  # the system does not say
                dead = worker in gone
            record = slot.latest
            counted[worker] = self._number(worker, record, dead=dead)
            # An agent of a release without records may have the slot now.
            died[worker, record.running] = float(dead and worker not in up)
        self._counted = counted
        return [
            by_label(
                AGENT_STARTS, {one: starts for one, (starts, _) in counted.items()}
            ),
            by_label(AGENT_CRASHES, {one: died for one, (_, died) in counted.items()}),
            by_label(AGENT_DIED, died),
        ]

    def _number(
        self, worker: str, record: ProcessEnd, *, dead: bool
    ) -> tuple[int, int]:
        """Return how many processes started and crashed."""
        starts, crashes = record.starts, record.crashes + dead
        before = self._counted.get(worker)
        if before is not None and before[0] <= starts:
            crashes = max(crashes, before[1])
        return starts, crashes


class ExitStatuses:
    """
    Adds to the records of processes in *run_dir* how the kernel saw them exit: from
    Linux 6.15 on, of those that it sees from here.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        # Descriptors, by worker and number of the process in its slot.
        self._followed: dict[tuple[str, int], int] = {}

    def follow(
        self, slots: Mapping[str, SlotEnds], sockets: Mapping[str, Path]
    ) -> None:
        """Follow those of *slots* that run, with *sockets*; 50 µs for a new one."""
        for (worker, starts), process in list(self._followed.items()):
            slot = slots.get(worker)
            if slot is not None and slot.latest.starts == starts and slot.held:
                continue
            known = hung.exit_of(process)
            if known is not None:
                endings.complete(self._path(worker), starts, known)
            elif slot is not None and slot.of(starts) is not None:
                continue  # nothing has waited for it yet
            del self._followed[worker, starts]
            os.close(process)
        for worker in slots.keys() & sockets.keys():
            slot = slots[worker]
            key = worker, slot.latest.starts
            room = len(self._followed) < _MOST_FOLLOWED
            if slot.held and room and key not in self._followed:
                listening = hung.process_of(sockets[worker])
                if listening is not None and self._is_held(worker, slot):
                    self._followed[key] = listening
                elif listening is not None:
                    os.close(listening)

    def _is_held(self, worker: str, slot: SlotEnds) -> bool:
        """Return whether the same process still has the *slot*."""
        try:
            now = endings.slot(self._path(worker))
        except NewerSchemaError:
            return False
        same = now is not None and now.latest.starts == slot.latest.starts
        return same and now is not None and bool(now.held)

    def _path(self, worker: str) -> Path:
        return self._run_dir / f"agent-{worker}.end"

    def close(self) -> None:
        """Follow none any more."""
        for process in self._followed.values():
            with suppress(OSError):
                os.close(process)
        self._followed.clear()


class LeftCounts(NamedTuple):
    """The counts that a process left, as they were read: whose, and how large."""

    of: ProcessEnd
    families: list[Family]
    size: int


class EndedCounts:
    """
    Reads the counts that agents leave in *run_dir*, each of them once.

    Args:
        run_dir: where they are.
        max_total: maximum size of their text; more than that count as none.
    """

    def __init__(self, run_dir: Path, max_total: int) -> None:
        self._run_dir = run_dir
        self._max_total = max_total
        self._known: dict[str, LeftCounts] = {}

    def read(self, slots: Mapping[str, SlotEnds]) -> dict[str, PageError]:
        """Read what is new in *slots*; return what is wrong with counts, by worker."""
        troubles: dict[str, PageError] = {}
        found: dict[str, LeftCounts] = {}
        total = 0
        for worker, slot in slots.items():
            if (of := slot.counted) is None:
                continue
            known = self._known.get(worker)
            if known is None or _identity(known.of) != _identity(of):
                try:
                    known = self._read(worker, of)
                except (PageError, ValueError) as error:
                    msg = f"counts of ended processes: {error}"
                    troubles[worker] = PageError(msg)
                    known = LeftCounts(of, [], 0)
            if known is None:
                continue
            total += known.size
            if total <= self._max_total:
                found[worker] = known
        self._known = found
        return troubles

    def merged(
        self, pages: Mapping[str, list[Family]], slots: Mapping[str, SlotEnds]
    ) -> Iterator[tuple[str, list[Family]]]:
        """
        Yield the families of each worker: what its process responded, with the counts
        of those before it, or what is left of it.

        Args:
            pages: responses by worker, without samples if there is none.
            slots: what is known of the slots since then.
        """
        for worker in {**pages, **self._known}:
            page, slot = pages.get(worker, []), slots.get(worker)
            known = self._known.get(worker)
            if known is None or not known.families or slot is None:
                yield worker, page
            elif known.of.starts == slot.latest.starts:
                # It has ended, and what is left has more than it responded.
                yield worker, _left(worker, known)
            elif known.of.starts + 1 == slot.latest.starts:
                yield worker, _continued(worker, page, known)
            else:
                yield worker, page

    def _read(self, worker: str, of: ProcessEnd) -> LeftCounts | None:
        """
        Return the counts that the process *of* left, `None` if they are void.

        Raises:
            PageError: their text is not what an agent may export.
            ValueError: it is no text.
        """
        text = endings.counts(self._run_dir / f"agent-{worker}.end", of)
        if text is None:
            return None
        # Loaded only if there is something.
        from jaxmon_exporter.collectors.agents import page  # noqa: PLC0415

        found = [o for o in page.families(worker, text) if o.metric.kind in _KINDS]
        return LeftCounts(of, found, len(text))


def changed(
    before: Mapping[str, SlotEnds], after: Mapping[str, SlotEnds], worker: str
) -> bool:
    """Return whether another process started in a slot in between."""
    old, new = before.get(worker), after.get(worker)
    return (
        old is not None and new is not None and old.latest.starts != new.latest.starts
    )


def _identity(of: ProcessEnd) -> tuple[object, ...]:
    return of.starts, of.pid, of.counted_since, of.counted_until, of.counted_bytes


def _left(worker: str, counts: LeftCounts) -> list[Family]:
    if (age := endings.counted_age(counts.of)) is None:
        return []
    mark = gauge(AGENT_ENDED_SECONDS, age, worker)
    return [*counts.families, mark, _counting(worker, counts.of)]


def _continued(worker: str, page: list[Family], counts: LeftCounts) -> list[Family]:
    own = [one for one in page if one.metric.name != COUNTING_SECONDS.name]
    # Agents of earlier releases do not know that there is something to continue.
    if len(own) == len(page):
        return page
    return [*added(own, counts.families), _counting(worker, counts.of)]


def _counting(worker: str, of: ProcessEnd) -> Family:
    metric = COUNTING_SECONDS._replace(labels=("worker",))
    seconds = monotonic() - of.counted_since
    return Family(COUNTING_SECONDS, [(series(metric, worker), seconds)])
