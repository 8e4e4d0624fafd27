"""
The files of NCCL Inspector, and what is in them, counted by who wrote them.

Written from NVIDIA's source, not from files of a real job: ``inspectorStateDumpJSON``,
``inspectorCommInfoDump`` and ``jsonDouble`` of the plugin (``inspector.cc``,
``inspector_json.cc``, ``json.cc``) in NCCL 2.28.3 (f1308997), 2.29.7 (b91894bd) and
2.30.7 (73cf1122), with the bandwidths of ``inspectorComputeOpBw``. Compared with what
these functions of 2.28.9 and 2.30.7 write when compiled.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Self


OLD, NEW = "2.28.9", "2.30.7"
_BUFFER = 4096
_CLASSES = (("under_1MiB", 20), ("under_16MiB", 24), ("under_256MiB", 28))
# Traffic of a message by ranks, and what of it is on the bus.
_FACTORS: Mapping[str, Callable[[int], tuple[int, float]]] = {
    "AllReduce": lambda ranks: (1, 2 * (ranks - 1) / ranks),
    "ReduceScatter": lambda ranks: (ranks, (ranks - 1) / ranks),
    "AllGather": lambda ranks: (ranks, (ranks - 1) / ranks),
    **dict.fromkeys(("Broadcast", "Reduce", "Send", "Recv"), lambda _: (1, 1.0)),
}
_PEER = 1


@dataclass
class Rank:
    """A rank of a communicator, and how many collectives of each kind it launched."""

    rank: int = 0
    ranks: int = 8
    id: str = "0x7f8c496ae9f661"
    name: str = "unknown"
    launched: Counter[str] = field(default_factory=Counter)


@dataclass
class Truth:
    """
    What a reader should find: by kind and size class, how many, bytes of messages,
    bytes on the bus, and seconds.
    """

    sums: dict[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)

    def add(self, kind: str, size: int, micros: int, ranks: int) -> None:
        place = (
            kind,
            next((name for name, bits in _CLASSES if size >> bits == 0), "larger"),
        )
        traffic, factor = _FACTORS[kind](ranks)
        found = (1, size, size * traffic * factor, micros / 1e6)
        known = self.sums.get(place, (0.0,) * len(found))
        self.sums[place] = tuple(map(sum, zip(known, found, strict=True)))


class Writer:
    """
    The dump thread of the process *pid*, which opens its file as Inspector does.

    Args:
        directory: of the files.
        host: name of its host.
        version: of NCCL.
        verbose: with ``NCCL_INSPECTOR_DUMP_VERBOSE``.
    """

    def __init__(
        self,
        directory: Path,
        host: str,
        pid: int,
        *,
        version: str = NEW,
        verbose: bool = False,
    ) -> None:
        self.path = directory / f"{host}-pid{pid}.log"
        self.truth = Truth()
        self._host, self._pid = host, pid
        self._new = version == NEW
        self._verbose = verbose
        # As fopen(…, "w") does: it truncates, and appends nothing.
        self._file = FileIO(self.path, "w")
        self.path.chmod(0o666)
        self._pending = bytearray()
        self._time = 1_748_030_377_748_202

    def launch(
        self,
        rank: Rank,
        kind: str = "AllReduce",
        *,
        size: int = 64 << 20,
        micros: int = 1000,
        by: str = "kernel_gpu",
    ) -> None:
        """Record a collective, or a send or receive, that took *micros*; no flush."""
        number = self.skip(rank, kind)
        traffic, factor = _FACTORS[kind](rank.ranks)
        algorithm = size * traffic / 1e9 / (micros / 1e6)
        if by == "kernel_gpu":
            self.truth.add(kind, size, micros, rank.ranks)
        what = "p2p" if kind in ("Send", "Recv") else "coll"
        peer = f'"p2p_peer":{_PEER},' if what == "p2p" else ""
        self._write(
            f'{{"header":{self._header(rank)},"metadata":{self._metadata()},'
            f'"{what}_perf":{{"{what}":"{kind}","{what}_sn":{number},{peer}'
            f'"{what}_msg_size_bytes":{size},"{what}_exec_time_us":{micros},'
            f'"{what}_timing_source":"{by}",'
            f'"{what}_algobw_gbs":{algorithm:f},'
            f'"{what}_busbw_gbs":{algorithm * factor:f}'
            f"{self._trace(what)}}}}}\n"
        )

    def skip(self, rank: Rank, kind: str = "AllReduce", number: int = 1) -> int:
        """Launch collectives that are not recorded; return the number of the last."""
        key = "p2p" if kind in ("Send", "Recv") else kind
        rank.launched[key] += number
        # Those of a communicator count from 0, sends and receives from 1.
        return rank.launched[key] - (key != "p2p")

    def flush(self) -> None:
        """Write all, as Inspector does after each dump."""
        self._file.write(self._pending)
        self._pending.clear()

    def raw(self, data: bytes) -> None:
        """Write what is no record, at once."""
        self._pending += data
        self.flush()

    def later(self, micros: int) -> None:
        """Let its clock pass *micros*."""
        self._time += micros

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, record: str) -> None:
        self._pending += record.encode()
        # A full buffer is written in the middle of a line.
        while len(self._pending) >= _BUFFER:
            self._file.write(self._pending[:_BUFFER])
            del self._pending[:_BUFFER]

    def _header(self, rank: Rank) -> str:
        name = f'"comm_name":"{rank.name}",' if self._new else ""
        return (
            f'{{"id":"{rank.id}",{name}"rank":{rank.rank},"n_ranks":{rank.ranks},'
            '"nnodes":1}'
        )

    def _metadata(self) -> str:
        self._time += 1
        return (
            '{"inspector_output_format_version":"v4.0","git_rev":"",'
            '"rec_mechanism":"nccl_profiler_interface",'
            f'"dump_timestamp_us":{self._time},"hostname":"{self._host}",'
            f'"pid":{self._pid}}}'
        )

    def _trace(self, what: str) -> str:
        if not self._verbose:
            return ""
        events = [
            ",".join(
                f'{{"channel_id":{channel},"kernel_start_{unit}":{3 + channel},'
                f'"kernel_stop_{unit}":{6 + channel},'
                f'"kernel_record_{unit}":{9 + channel}}}'
                for channel in range(64)
            )
            for unit in ("sn", "ts")
        ]
        return "".join(
            f',"event_trace_{unit}":{{"{what}_start_{unit}":1,"{what}_stop_{unit}":2,'
            f'"kernel_events":[{found}]}}'
            for unit, found in zip(("sn", "ts"), events, strict=True)
        )
