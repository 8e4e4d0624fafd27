"""
CPU, memory, pressure, network and disks of the host.

In a container these are the node's figures, not the container's, which
`jaxmon.exposition.container` tells.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jaxmon.catalog import (
    HOST_CPU_SECONDS,
    HOST_CPUS,
    HOST_DISK_AVAILABLE_BYTES,
    HOST_DISK_SIZE_BYTES,
    HOST_LOAD_1M,
    HOST_MEMORY_AVAILABLE_BYTES,
    HOST_MEMORY_SIZE_BYTES,
    HOST_NETWORK_RECEIVE_BYTES,
    HOST_NETWORK_TRANSMIT_BYTES,
    HOST_PRESSURE_SECONDS,
    PRESSURE_RESOURCES,
)
from jaxmon.exposition.container import stalled
from jaxmon.exposition.families import Family, Sample, gauge, series
from jaxmon_exporter.polling import partial_failures


# In the kernel's order. Two more are for guests, counted into user and nice as well.
_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

# Network cards that are reported; the busiest hosts for accelerators have ten.
_MOST_INTERFACES = 16


class Host:
    """
    Reads the host through ``/proc`` and ``/sys``. What they do not tell is left out.

    Args:
        interval: seconds between two looks.
        directories: of which the file systems are watched; a hung one costs this
            collector its freshness.
        root: where ``proc`` and ``sys`` are.
    """

    name = "host"
    deadline = 5.0

    def __init__(
        self,
        *,
        interval: float = 5.0,
        directories: Sequence[Path] = (),
        root: Path = Path("/"),
    ) -> None:
        self.interval = interval
        self._directories = directories
        self._root = root
        self._failures: Counter[str] = Counter()

    def collect(self) -> Iterable[Family]:
        """
        Read the kernel's files once; takes a fraction of a millisecond.
        """
        yield from self._cpu()
        yield from self._memory()
        yield self._pressure()
        yield from self._network()
        yield from self._disks()

    def close(self) -> None:
        """
        Nothing is held.
        """

    def _cpu(self) -> Iterator[Family]:
        second = os.sysconf("SC_CLK_TCK")
        ticks = _first_line(self._root / "proc/stat").split()[1:]
        yield Family(
            HOST_CPU_SECONDS,
            [
                (series(HOST_CPU_SECONDS, mode), int(spent) / second)
                # Old kernels have fewer modes.
                for mode, spent in zip(_MODES, ticks, strict=False)
            ],
        )
        if cpus := os.cpu_count():
            yield gauge(HOST_CPUS, cpus)
        if load := _first_line(self._root / "proc/loadavg").split():
            yield gauge(HOST_LOAD_1M, float(load[0]))

    def _memory(self) -> Iterator[Family]:
        """
        Yield size and what is available, which the kernel tells in KiB.
        """
        told = dict(
            line.split(":", 1) for line in _lines(self._root / "proc/meminfo") if line
        )
        for name, metric in (
            ("MemTotal", HOST_MEMORY_SIZE_BYTES),
            ("MemAvailable", HOST_MEMORY_AVAILABLE_BYTES),
        ):
            if name in told:
                yield gauge(metric, int(told[name].split()[0]) * 1024)

    def _pressure(self) -> Family:
        metric = HOST_PRESSURE_SECONDS
        directory = self._root / "proc" / "pressure"
        return Family(
            metric,
            [
                (series(metric, resource, kind), seconds)
                for resource in PRESSURE_RESOURCES
                for kind, seconds in stalled(directory / resource)
            ],
        )

    def _network(self) -> Iterator[Family]:
        """
        Yield the traffic of network cards, which bridges and tunnels repeat.
        """
        received: list[Sample] = []
        sent: list[Sample] = []
        for card in self._cards():
            figures = card / "statistics"
            try:
                rx = int((figures / "rx_bytes").read_text())
                tx = int((figures / "tx_bytes").read_text())
            except (OSError, ValueError):  # taken away meanwhile
                continue
            received.append((series(HOST_NETWORK_RECEIVE_BYTES, card.name), rx))
            sent.append((series(HOST_NETWORK_TRANSMIT_BYTES, card.name), tx))
        yield Family(HOST_NETWORK_RECEIVE_BYTES, received)
        yield Family(HOST_NETWORK_TRANSMIT_BYTES, sent)

    def _cards(self) -> list[Path]:
        found = (self._root / "sys" / "class" / "net").glob("*")
        # Only what has hardware below it; a container's own end of a cable has not,
        # and is then all that can be seen.
        interfaces = sorted(one for one in found if one.name != "lo")
        cards = [one for one in interfaces if (one / "device").exists()]
        return (cards or interfaces)[:_MOST_INTERFACES]

    def _disks(self) -> Iterator[Family]:
        sizes: list[Sample] = []
        left: list[Sample] = []
        for directory in self._directories:
            try:
                disk = os.statvfs(directory)
            except OSError:
                self._failures["directory_unreadable"] += 1
                continue
            size, available = disk.f_blocks, disk.f_bavail
            sizes.append(
                (series(HOST_DISK_SIZE_BYTES, directory), size * disk.f_frsize)
            )
            left.append(
                (
                    series(HOST_DISK_AVAILABLE_BYTES, directory),
                    available * disk.f_frsize,
                )
            )
        yield Family(HOST_DISK_SIZE_BYTES, sizes)
        yield Family(HOST_DISK_AVAILABLE_BYTES, left)
        yield partial_failures(self.name, self._failures)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _first_line(path: Path) -> str:
    return next(iter(_lines(path)), "")
