"""
Collectives of ranks as NCCL Inspector records them, one to a line: parsed, counted by
worker, kind and size of the message, and those of the latest half minute by rank, for
ranks to be compared.

The format is that of the plugin's JSON writer in NCCL 2.28.3 to 2.30.7:
``inspectorCommInfoDump`` in ``ext-profiler/inspector/inspector.cc``, since 2.29.7 in
``plugins/profiler/inspector``, and since 2.30.3 in ``inspector_json.cc`` there.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jaxmon import catalog
from jaxmon.catalog.values import NCCL_COLLECTIVES, NCCL_MESSAGE_SIZES
from jaxmon.exposition.families import Family, family_of
from jaxmon.facts.host import CollectiveTimes, CommunicatorRank, InspectedCollectives
from jaxmon_exporter.polling import Clock


# Times from the processor are those of launches, or of polls; Inspector itself drops
# such records by default since 2.30.3.
_BY_GPU = "kernel_gpu"
_GIGABYTES = 1e9
_MOST_RANKS = 1 << 20
_MOST_BYTES = 1 << 60
_MOST_MICROSECONDS = 10**11
# No bus has a petabyte per second.
_MOST_BANDWIDTH = 1e15
_MOST_NUMBER = 1 << 63
_LONGEST = 32
_BOUNDS = (1 << 20, 1 << 24, 1 << 28)


class InspectedProcess(NamedTuple):
    """A process, by what Inspector names its file after."""

    host: str
    pid: int


class BrokenRecordError(ValueError):
    """A line is not a record of Inspector."""


class CollectiveRecord(NamedTuple):
    """
    A collective, or a send or receive.

    The hash of its *communicator* is the same on all *ranks*. *number* counts those of
    its kind that the communicator has launched, `None` of sends and receives. *seconds*
    are of its kernel on the GPU, which waits for other ranks; *bus* is the bus
    bandwidth times these. If *sampled*, it stands for those before it that were not
    recorded; since NCCL 2.30.3 these are others, under 8 KiB.
    """

    communicator: str
    rank: int
    ranks: int
    collective: str
    number: int | None
    message: int
    seconds: float
    bus: float
    sampled: bool

    @property
    def size(self) -> str:
        """Return the size class of its message, one of `NCCL_MESSAGE_SIZES`."""
        below = sum(self.message >= bound for bound in _BOUNDS)
        return NCCL_MESSAGE_SIZES[below]


def parse(line: bytes) -> CollectiveRecord | None:
    """Return the record in *line*, `None` if the GPU did not time it; 10 µs."""
    try:
        # No deeper than the caller's limit of a line allows, which Python withstands.
        found = json.loads(line.decode())
        return _record(found)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BrokenRecordError(str(error)) from error


def _record(found: Any) -> CollectiveRecord | None:
    header = found["header"]
    prefix = "coll" if "coll_perf" in found else "p2p"
    of: Mapping[str, Any] = found[f"{prefix}_perf"]
    if of[f"{prefix}_timing_source"] != _BY_GPU:
        return None
    ranks = _whole(header["n_ranks"], 1, _MOST_RANKS)
    kind = of[prefix]
    seconds = _whole(of[f"{prefix}_exec_time_us"], 0, _MOST_MICROSECONDS) / 1e6
    bandwidth = of[f"{prefix}_busbw_gbs"] * _GIGABYTES
    if not 0 <= bandwidth <= _MOST_BANDWIDTH:
        msg = "implausible bandwidth"
        raise ValueError(msg)
    return CollectiveRecord(
        str(header["id"])[:_LONGEST],
        _whole(header["rank"], 0, ranks - 1),
        ranks,
        kind if kind in NCCL_COLLECTIVES else "other",
        _whole(of["coll_sn"], 0, _MOST_NUMBER) if prefix == "coll" else None,
        _whole(of[f"{prefix}_msg_size_bytes"], 0, _MOST_BYTES),
        seconds,
        bandwidth * seconds,
        # NCCL names the communicator since it records all.
        sampled="comm_name" not in header,
    )


def _whole(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        msg = f"{str(value)[:_LONGEST]} is not a number from {least} to {most}"
        raise ValueError(msg)
    return value


_METRICS = (
    catalog.NCCL_COLLECTIVES_RECORDED,
    catalog.NCCL_MESSAGE_BYTES,
    catalog.NCCL_BUS_BYTES,
    catalog.NCCL_COLLECTIVE_SECONDS,
)
_NONE = [0.0] * len(_METRICS)
# Communicators of a process times kinds; a program that makes ever more of them loses
# what lies between two records, once.
_MOST_NUMBERS = 50_000
# After the last record of a worker.
_KEPT_SECONDS = 3600.0


@dataclass(slots=True)
class _WorkerTally:
    """What is counted of a worker, by kind and size, and when it was last *heard*."""

    heard: float = 0.0
    sums: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    unrecorded: Counter[str] = field(default_factory=Counter)


class Tallies:
    """Counts the records of all processes of a host."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._workers: defaultdict[str, _WorkerTally] = defaultdict(_WorkerTally)
        self._numbers: dict[tuple[InspectedProcess, str, int, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._workers)

    def add(
        self, worker: str, process: InspectedProcess, record: CollectiveRecord
    ) -> int:
        """Count a record; return how many of its kind were launched, with it."""
        tally = self._workers[worker]
        tally.heard = self._clock()
        before = tally.sums.get((record.collective, record.size), _NONE)
        values = (1.0, record.message, record.bus, record.seconds)
        sums = [a + b for a, b in zip(before, values, strict=True)]
        tally.sums[record.collective, record.size] = sums
        missed = self._missed(process, record)
        tally.unrecorded[record.collective] += missed
        return missed + 1

    def _missed(self, process: InspectedProcess, record: CollectiveRecord) -> int:
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
        for worker, tally in list(self._workers.items()):
            if tally.heard < since:
                del self._workers[worker]
        rows, missed = [], []
        for name, tally in self._workers.items():
            rows += [(name, *key, *of) for key, of in tally.sums.items()]
            missed += [(name, *of) for of in tally.unrecorded.items()]
        for place, metric in enumerate(_METRICS, 3):
            yield family_of(metric, [(*row[:3], row[place]) for row in rows])
        yield family_of(catalog.NCCL_UNRECORDED_COLLECTIVES, missed)


# All ranks do the same in these. In others the root ends first, or a sender.
_SYMMETRIC = ("AllReduce", "AllGather", "ReduceScatter")
_WINDOWS = 3
_LEAST_SECONDS = 10.0
_MOST_RECENT = 4096
_MOST_ROWS = 256


class _RankKey(NamedTuple):
    host: str
    pid: int
    communicator: str
    rank: int
    ranks: int
    collective: str
    size: str

    @property
    def compared(self) -> tuple[str, int, str, str]:
        """What ranks must have in common to be compared."""
        return self.communicator, self.ranks, self.collective, self.size


class RecentCollectives:
    """Keeps the sums of the last three windows of ten seconds or more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock()
        # By rank: collectives launched, recorded, seconds, and squares.
        self._sums: dict[_RankKey, list[float]] = {}
        # The seconds of each, and its sums.
        self._windows: deque[tuple[float, dict[_RankKey, list[float]]]] = deque(
            maxlen=_WINDOWS
        )

    def add(
        self, process: InspectedProcess, record: CollectiveRecord, launched: int
    ) -> None:
        """Add a record, which stands for so many that were *launched*."""
        if record.collective not in _SYMMETRIC or record.ranks == 1:
            return
        communicator, rank, ranks, collective = record[:4]
        key = _RankKey(*process, communicator, rank, ranks, collective, record.size)
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) == _MOST_RECENT:
                return
            self._sums[key] = sums = [0.0] * 4
        seconds = record.seconds
        for place, value in enumerate((launched, 1, seconds, seconds * seconds)):
            sums[place] += value

    def turn(self) -> None:
        """Begin another window, if this one is long enough."""
        now = self._clock()
        if now - self._began >= _LEAST_SECONDS:
            self._windows.appendleft((now - self._began, self._sums))
            self._began, self._sums = now, {}

    def describe(self) -> InspectedCollectives | None:
        """Return the windows of the slowest collectives, newest first."""
        windows = [sums for _, sums in self._windows]
        if len(windows) < _WINDOWS:
            return None
        newest = windows[0]
        keys = [key for key in newest if all(key in sums for sums in windows)]
        if not keys:
            return None
        # Not by the seconds of each rank: the last one has fewest.
        spent: defaultdict[tuple[str, int, str, str], float] = defaultdict(float)
        for key in keys:
            spent[key.compared] += newest[key][2]
        keys.sort(key=lambda key: (spent[key.compared], key.compared), reverse=True)
        return InspectedCollectives(
            seconds=tuple(seconds for seconds, _ in self._windows),
            ranks=tuple(
                CommunicatorRank(
                    *key, tuple(CollectiveTimes(*sums[key]) for sums in windows)
                )
                for key in keys[:_MOST_ROWS]
            ),
        )
