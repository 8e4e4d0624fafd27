"""NCCL Inspector's collector as tests poll it, and what it should export."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from jaxmon_exporter.collectors.inspector import Inspector
from jaxmon_exporter.polling import Poller
from tests.fakes.nccl.inspector import Rank, Writer


Write = Callable[..., Writer]

HOST = "node-7"
NAMES = ("collectives", "message_bytes", "bus_bytes", "collective_seconds")
ERRORS = 'jaxmon_collector_errors_total{collector="nccl_inspector",reason="'


class Inspected:
    """The collector of the files of *host* in *directory*, with a clock of the test."""

    def __init__(self, directory: Path, run_dir: Path, **options: Any) -> None:
        self.now = 100.0
        self.collector = Inspector(
            directory, run_dir, **{"host": HOST, "clock": lambda: self.now, **options}
        )
        self.poller = Poller(self.collector)

    def poll(self) -> dict[str, float]:
        """Poll; return all series, and failures by reason."""
        self.poller.poll()
        assert self.poller.status().success, self.poller.status().message
        found = (one for family in self.poller.families() for one in family.samples)
        return {
            name[len(ERRORS) : -2] if name.startswith(ERRORS) else name: value
            for name, value in found
        }

    def reason(self) -> str:
        """Poll; return why there is nothing."""
        self.poller.poll()
        return self.poller.status().reason


def expected(writers: Iterable[Writer], worker: str = "other") -> dict[str, float]:
    """Return the series that *writers* account for, in one worker."""
    found: dict[str, float] = {}
    for writer in writers:
        for (kind, size), sums in writer.truth.sums.items():
            labels = f'worker="{worker}",collective="{kind}",size="{size}"'
            for name, value in zip(NAMES, sums, strict=True):
                series = f"jaxmon_nccl_{name}_total{{{labels}}}"
                found[series] = found.get(series, 0.0) + value
    return found


def counted(page: dict[str, float]) -> dict[str, float]:
    """Return the sums of *page*."""
    prefixes = tuple(f"jaxmon_nccl_{name}_total{{" for name in NAMES)
    return {name: value for name, value in page.items() if name.startswith(prefixes)}


def some(writer: Writer, rank: Rank, number: int = 8) -> None:
    """Record *number* collectives of several kinds and sizes, and write them."""
    kinds = ("AllReduce", "AllGather", "ReduceScatter", "Send")
    for one in range(number):
        size = 700_001 << one % 4 * 4
        writer.launch(rank, kinds[one % 4], size=size, micros=100 + 37 * one)
    writer.flush()


@contextmanager
def writing(directory: Path) -> Iterator[Write]:
    """Give a function that starts what writes the file of a process."""
    with ExitStack() as stack:

        def start(pid: int, host: str = HOST, **options: Any) -> Writer:
            return stack.enter_context(Writer(directory, host, pid, **options))

        yield start


def agent_in(pid: int, host: str = HOST) -> bytes:
    """Return what the agent in a process reports of itself."""
    return json.dumps({"host": host, "pid": pid}).encode()
