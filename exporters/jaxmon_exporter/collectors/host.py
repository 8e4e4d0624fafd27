"""CPU, memory, pressure, network and disks of the host, also from a container."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jaxmon import catalog
from jaxmon.exposition.families import Family, by_label, gauge
from jaxmon.host.resources.container import stalled
from jaxmon_exporter.polling import Collector, partial_failures


# Two more are for guests, which the kernel counts into user and nice as well.
_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
# What psutil raises where a file of the kernel is missing, empty or cut off.
_UNREADABLE = (OSError, TypeError, ValueError, IndexError, KeyError)

# Network cards that are reported; the busiest hosts for accelerators have ten.
_MOST_INTERFACES = 16


class Host(Collector):
    """Reads the host from psutil, ``proc`` and ``sys``; omits what is missing."""

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
        self._directories = list(dict.fromkeys(directories))
        self._root = root
        self._failures: Counter[str] = Counter()

    def collect(self) -> Iterable[Family]:
        """Read the kernel's files once; takes a fraction of a millisecond."""
        if cpus := os.cpu_count():
            yield gauge(catalog.HOST_CPUS, cpus)
        if load := _read(self._root / "proc/loadavg").split():
            yield gauge(catalog.HOST_LOAD_1M, float(load[0]))
        yield from self._cpu_and_memory()
        yield self._pressure()
        yield from self._network()
        yield from self._disks()

    def _cpu_and_memory(self) -> Iterator[Family]:
        import psutil  # noqa: PLC0415 - not where this is switched off

        spent: dict[str, float] = {}
        memory = None
        # A setting of the whole module, which has no other user in this process.
        usual, psutil.PROCFS_PATH = psutil.PROCFS_PATH, str(self._root / "proc")
        try:
            with contextlib.suppress(*_UNREADABLE):
                spent = psutil.cpu_times()._asdict()
            with contextlib.suppress(*_UNREADABLE):
                memory = psutil.virtual_memory()
        finally:
            psutil.PROCFS_PATH = usual
        # In the kernel's order; old ones have fewer modes.
        times = {mode: spent[mode] for mode in _MODES if mode in spent}
        yield by_label(catalog.HOST_CPU_SECONDS, times)
        if memory is not None:
            yield gauge(catalog.HOST_MEMORY_SIZE_BYTES, memory.total)
            yield gauge(catalog.HOST_MEMORY_AVAILABLE_BYTES, memory.available)

    def _pressure(self) -> Family:
        directory = self._root / "proc/pressure"
        found = {
            (resource, kind): seconds
            for resource in catalog.PRESSURE_RESOURCES
            for kind, seconds in stalled(directory / resource)
            if kind in catalog.PRESSURE_KINDS
        }
        return by_label(catalog.HOST_PRESSURE_SECONDS, found)

    def _network(self) -> Iterator[Family]:
        """Yield the traffic of network cards, which bridges and tunnels repeat."""
        found: dict[str, tuple[int, int]] = {}
        net = self._root / "sys/class/net"
        for card in _cards(net):
            counts = net / card / "statistics"
            with contextlib.suppress(ValueError):  # taken away meanwhile
                received = int(_read(counts / "rx_bytes"))
                found[card] = received, int(_read(counts / "tx_bytes"))
        for place, metric in enumerate(
            (catalog.HOST_NETWORK_RECEIVE_BYTES, catalog.HOST_NETWORK_TRANSMIT_BYTES)
        ):
            yield by_label(metric, {card: both[place] for card, both in found.items()})

    def _disks(self) -> Iterator[Family]:
        sizes: dict[Path, float] = {}
        left: dict[Path, float] = {}
        for directory in self._directories:
            try:
                disk = os.statvfs(directory)
            except OSError:
                self._failures["directory_unreadable"] += 1
                continue
            sizes[directory] = disk.f_blocks * disk.f_frsize
            left[directory] = disk.f_bavail * disk.f_frsize
        yield by_label(catalog.HOST_DISK_SIZE_BYTES, sizes)
        yield by_label(catalog.HOST_DISK_AVAILABLE_BYTES, left)
        yield partial_failures(self.name, self._failures)


def _cards(net: Path) -> list[str]:
    try:
        names = sorted(name for name in os.listdir(net) if name != "lo")  # noqa: PTH208 - names only
    except OSError:
        return []
    # Only what has hardware below it; a container's own end of a cable has not, and is
    # then all that can be seen.
    cards = [name for name in names if (net / name / "device").exists()]
    return (cards or names)[:_MOST_INTERFACES]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
