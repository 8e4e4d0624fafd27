"""
TPUs: chips from the PCI bus, metrics from the runtimes of the processes that use them.

Chips without a process are idle, and a process without a server exports nothing:
neither is a failure of the collector.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from jaxmon import catalog
from jaxmon.exposition.families import Family, by_label, gauge
from jaxmon.host import tpus
from jaxmon.host.tpus import Chip
from jaxmon_exporter.collectors.tpu import runtimes as tpu_addresses
from jaxmon_exporter.collectors.tpu.messages import CoreState
from jaxmon_exporter.polling import (
    Clock,
    Collector,
    CollectorUnavailable,
    partial_failures,
)


if TYPE_CHECKING:
    from jaxmon_exporter.collectors.tpu.figures import Figures
    from jaxmon_exporter.collectors.tpu.runtimes import RuntimeReading, Runtimes


log = logging.getLogger("jaxmon.exporter")

_STILL_SECONDS = 60.0
_MOST_TEXT = 300

Standing: TypeAlias = "tuple[str, int, str, CoreState]"
"""Uuid of a chip, core, runtime, state."""


class HangDetector:
    """Remembers the position of each core, and since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Its state, since when, and whether that was logged.
        self._seen: dict[tuple[str, int], tuple[CoreState, float, bool]] = {}
        self._errors: dict[tuple[str, int], str] = {}

    def update(self, states: Iterable[Standing]) -> list[Standing]:
        """Record *states*; return those newly without progress."""
        now, before = self._clock(), self._seen
        self._seen, hung = {}, []
        for uuid, core, runtime, state in states:
            last, since, logged = before.get((uuid, core), (state, now, False))
            if _moved(last, state) or not state.queued:
                last, since, logged = state, now, False
            elif not logged and now - since >= _STILL_SECONDS:
                logged = True
                hung.append((uuid, core, runtime, state))
            self._seen[uuid, core] = last, since, logged
            self._report_error(uuid, core, state)
        return hung

    def _report_error(self, uuid: str, core: int, state: CoreState) -> None:
        if state.error and self._errors.get((uuid, core)) != state.error:
            log.warning("core %d of %s: %s", core, uuid, _plain(state.error))
        self._errors[uuid, core] = state.error


def _moved(before: CoreState, now: CoreState) -> bool:
    at = now.program, now.run, now.counter
    return (before.program, before.run, before.counter) != at


def _plain(text: str) -> str:
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= _MOST_TEXT else f"{line[:_MOST_TEXT]}…"


_OWNERS_EVERY = 30.0


class Tpus(Collector):
    """Reads every TPU of this host, and every runtime that serves metrics."""

    name = "tpu"
    deadline = 8.0

    def __init__(
        self,
        *,
        interval: float = 5.0,
        root: Path = tpus.ROOT,
        environ: Mapping[str, str] = os.environ,
        clock: Clock = time.monotonic,
    ) -> None:
        self.interval = interval
        self._root = root
        self._clock = clock
        self._failures: Counter[str] = Counter()
        self._addresses, self._configured = tpu_addresses.addresses(environ)
        self._chips: dict[str, Chip] = {}
        self._owners: dict[str, int] = {}
        self._owners_at: float | None = None
        self._hangs = HangDetector(clock)

    def collect(self) -> Iterable[Family]:
        """Read chips and runtimes: a few milliseconds, at most five seconds."""
        chips = tpus.find(self._root)
        present = {chip.uuid for chip in chips}
        # A lost chip keeps its position until the hardware changes.
        if not present <= self._chips.keys():
            self._chips = {chip.uuid: chip for chip in chips}
        if not self._chips and not self._configured:
            raise CollectorUnavailable(*tpus.NONE)
        identity = [*self._identity(present), *self._owned(chips)]
        if not self._addresses:  # disabled by the variable that enables them
            return identity
        from jaxmon_exporter.collectors.tpu.figures import Figures  # noqa: PLC0415 - see above

        readings = self._read(identity)
        uuids, per_chip = self._layout(readings, present)
        figures = Figures(uuids, per_chip, readings, self._failures)
        found = [*identity, self._runtimes.up(), *figures.families()]
        self._watch(figures)
        return [*found, partial_failures(self.name, self._failures)]

    @cached_property
    def _runtimes(self) -> Runtimes:
        from jaxmon_exporter.collectors.tpu.runtimes import Runtimes  # noqa: PLC0415 - see above

        return Runtimes(
            self._addresses, configured=self._configured, failures=self._failures
        )

    def _read(self, identity: Sequence[Family]) -> list[RuntimeReading]:
        try:
            return self._runtimes.read()
        except ImportError as error:
            reason = "not_installed"
            message = (
                "the package grpcio is missing; pip install 'jaxmon[tpu]' to read what "
                "TPUs do, or pass --disable tpu"
            )
            raise CollectorUnavailable(reason, message, identity) from error

    def _layout(
        self, readings: Sequence[RuntimeReading], present: set[str]
    ) -> tuple[list[str], int]:
        """Return the uuids of the chips in order, and how many cores each has."""
        if not self._chips:
            return _placeholder_chips(readings)
        per_chip = next(iter(self._chips.values())).model.cores
        reported = sum(reading.count_cores() for reading in readings)
        if reported == len(present) * per_chip:
            # A program that began after the loss of a chip counts without it.
            return [uuid for uuid in self._chips if uuid in present], per_chip
        return list(self._chips), per_chip

    def _identity(self, present: set[str]) -> list[Family]:
        chips = self._chips.values()
        infos = {
            (chip.uuid, chip.index, "google", chip.model.name, "", chip.pci_bus_id): 1.0
            for chip in chips
        }
        up = {chip.uuid: float(chip.uuid in present) for chip in chips}
        return [
            by_label(catalog.ACCELERATOR_INFO, infos),
            by_label(catalog.ACCELERATOR_UP, up),
        ]

    def _owned(self, chips: Sequence[Chip]) -> list[Family]:
        """Return the processes that have the chips open; refreshed rarely: slow."""
        now = self._clock()
        if self._owners_at is None or now - self._owners_at >= _OWNERS_EVERY:
            nodes = frozenset(chip.node for chip in chips if chip.node)
            self._owners = tpus.owners(self._root, nodes) if nodes else {}
            self._owners_at = now
        return [
            gauge(catalog.TPU_OWNER_PID, self._owners[chip.node], chip.uuid)
            for chip in chips
            if chip.node in self._owners
        ]

    def _watch(self, figures: Figures) -> None:
        """Log the position of cores that make no progress while programs are queued."""
        if hung := self._hangs.update(figures.states()):
            locations = self._runtimes.locations(runtime for _, _, runtime, _ in hung)
            for uuid, core, runtime, state in hung:
                location = locations.get((runtime, state.chip, state.core))
                log.warning(
                    "core %d of %s has made no progress for a minute with %d programs "
                    "queued: run %s of program %s, at %s",
                    *(core, uuid, state.queued, state.run, state.program),
                    _plain(location) if location else f"instruction {state.counter}",
                )


def _placeholder_chips(readings: Sequence[RuntimeReading]) -> tuple[list[str], int]:
    """Return names for chips that cannot be seen, and how many cores each has."""
    cores = chips = 0
    for reading in readings:
        cores += reading.count_cores()
        chips += reading.count_chips()
    per_chip = max(1, cores // chips) if chips else 1
    return [f"TPU-{index}" for index in range(cores // per_chip)], per_chip
