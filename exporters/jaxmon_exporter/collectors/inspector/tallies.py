"""Counters of collectives, by worker, kind and size of the message."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.exposition.families import Family, series
from jaxmon_exporter.collecting import Clock
from jaxmon_exporter.collectors.inspector.files import Process
from jaxmon_exporter.collectors.inspector.record import Record


_METRICS = (
    catalog.NCCL_COLLECTIVES_RECORDED,
    catalog.NCCL_MESSAGE_BYTES,
    catalog.NCCL_BUS_BYTES,
    catalog.NCCL_COLLECTIVE_SECONDS,
)
# Communicators of a process times kinds; a program that makes ever more of them loses
# what lies between two records, once.
_MOST_NUMBERS = 50_000
# After the last record of a worker.
_KEPT_SECONDS = 3600.0


class Tallies:
    """Counts the records of all processes of a host."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sums: defaultdict[tuple[str, str, str], list[float]] = defaultdict(
            lambda: [0.0] * len(_METRICS)
        )
        self._unrecorded: Counter[tuple[str, str]] = Counter()
        self._numbers: dict[tuple[Process, str, int, str], int] = {}
        self._heard: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._sums)

    def add(self, worker: str, process: Process, record: Record) -> int:
        """
        Count a record; return how many collectives were launched since the one before
        of its kind and communicator, itself included.
        """
        self._heard[worker] = self._clock()
        of = self._sums[worker, record.collective, record.size]
        values = (1.0, record.message, record.bus, record.seconds)
        for place, value in enumerate(values):
            of[place] += value
        missed = self._missed(process, record)
        self._unrecorded[worker, record.collective] += missed
        return missed + 1

    def _missed(self, process: Process, record: Record) -> int:
        if record.number is None:
            return 0
        key = (process, record.communicator, record.rank, record.collective)
        before = self._numbers.get(key)
        if before is None and len(self._numbers) >= _MOST_NUMBERS:
            self._numbers.clear()
        self._numbers[key] = record.number
        # A communicator that is new starts again.
        return 0 if before is None else max(record.number - before - 1, 0)

    def families(self) -> Iterator[Family]:
        """Return the counters of workers that have records of the last hour."""
        since = self._clock() - _KEPT_SECONDS
        for worker in [one for one, heard in self._heard.items() if heard < since]:
            self._forget(worker)
        for place, metric in enumerate(_METRICS):
            samples = [
                (series(metric, *labels), of[place])
                for labels, of in self._sums.items()
            ]
            yield Family(metric, samples)
        metric = catalog.NCCL_UNRECORDED_COLLECTIVES
        found = self._unrecorded.items()
        yield Family(metric, [(series(metric, *one), count) for one, count in found])

    def _forget(self, worker: str) -> None:
        del self._heard[worker]
        for labels in [one for one in self._sums if one[0] == worker]:
            del self._sums[labels]
        for pair in [one for one in self._unrecorded if one[0] == worker]:
            del self._unrecorded[pair]
