"""
CPU, load and memory of the host.

In a container these are the node's figures, not the container's.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxmon.catalog import (
    HOST_CPU_SECONDS,
    HOST_CPUS,
    HOST_LOAD_1M,
    HOST_MEMORY_AVAILABLE_BYTES,
    HOST_MEMORY_SIZE_BYTES,
)
from jaxmon.exposition.families import Family, gauge, series


# The kernel counts guest time into user and nice as well.
_COUNTED_TWICE = ("guest", "guest_nice")


class Host:
    """
    Reads the host through psutil.
    """

    name = "host"
    deadline = 5.0

    def __init__(self, *, interval: float = 5.0) -> None:
        self.interval = interval

    def collect(self) -> Iterable[Family]:
        """
        Read ``/proc`` once; takes a fraction of a millisecond.
        """
        import psutil  # noqa: PLC0415 - loaded where used

        cpu = psutil.cpu_times()._asdict()
        yield Family(
            HOST_CPU_SECONDS,
            [
                (series(HOST_CPU_SECONDS, mode), seconds)
                for mode, seconds in cpu.items()
                if mode not in _COUNTED_TWICE
            ],
        )
        if cpus := psutil.cpu_count():
            yield gauge(HOST_CPUS, cpus)
        yield gauge(HOST_LOAD_1M, psutil.getloadavg()[0])
        memory = psutil.virtual_memory()
        yield gauge(HOST_MEMORY_SIZE_BYTES, memory.total)
        yield gauge(HOST_MEMORY_AVAILABLE_BYTES, memory.available)

    def close(self) -> None:
        """
        Nothing is held.
        """
