"""
This process's own ``process_*`` and ``python_gc_*`` series, and its uptime.

Names and semantics match prometheus_client, which existing dashboards expect. Its code
is not used: it comes with an HTTP server, a mail parser and TLS, and some megabytes in
every observed process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jaxmon import catalog, interrupts
from jaxmon.catalog import Metric
from jaxmon.clocks import monotonic, wall_time
from jaxmon.exposition.families import Family, by_label, gauge


# More than a figure of the kernel's takes.
_SHORT = 4096
# Fields of /proc/PID/stat behind the name in brackets, which may hold anything.
_FLAGS, _STARTED = 6, 19
# Linux: include/linux/sched.h, `PF_FORKNOEXEC`.
_FORKED = 0x40
_GENERATIONS = {
    catalog.PYTHON_GC_OBJECTS_COLLECTED: "collected",
    catalog.PYTHON_GC_OBJECTS_UNCOLLECTABLE: "uncollectable",
    catalog.PYTHON_GC_COLLECTIONS: "collections",
}


class ProcessFamilies:
    """Reads what this process uses, in 0.05 ms; what is not reported is omitted."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        self._page = os.sysconf("SC_PAGE_SIZE")
        # Once: the clock may be set while we run, and a start does not move.
        old = age(proc)
        self._started = None if old is None else (wall_time() - old, monotonic() - old)

    def collect(self) -> list[Family]:
        """Return what can be read."""
        return [*(gauge(*found) for found in self._numbers()), *_garbage()]

    def _numbers(self) -> Iterator[tuple[Metric, float]]:
        import resource  # noqa: PLC0415 - a shared library, for one number

        if (pages := _pages(self._proc)) is not None:
            size, resident = pages
            yield catalog.PROCESS_VIRTUAL_MEMORY_BYTES, size * self._page
            yield catalog.PROCESS_RESIDENT_MEMORY_BYTES, resident * self._page
        yield catalog.PROCESS_CPU_SECONDS, time.process_time()
        if self._started is not None:
            started, began = self._started
            yield catalog.PROCESS_START_TIME_SECONDS, started
            # Whatever the program does to its clocks.
            yield catalog.UPTIME_SECONDS, max(0.0, monotonic() - began)
        with contextlib.suppress(OSError):
            names = os.listdir(self._proc / "fd")  # noqa: PTH208 - names only
            yield catalog.PROCESS_OPEN_FDS, len(names)
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most != resource.RLIM_INFINITY:
            yield catalog.PROCESS_MAX_FDS, most


def read_short(path: str | Path) -> bytes:
    """
    Return the beginning of a short file of the kernel.

    Each system call gives up the interpreter, and waits for it beside a busy program:
    these are three, where a file object makes eight.
    """
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(number, _SHORT)
    finally:
        os.close(number)


def resident_bytes(proc: Path = Path("/proc/self")) -> int | None:
    """Return how much memory the process has, `None` if the system does not say."""
    pages = _pages(proc)
    return None if pages is None else pages[1] * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes() -> int:
    """Return how much memory the process has had at most."""
    import resource  # noqa: PLC0415 - a shared library, for one number

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def age(proc: Path = Path("/proc/self")) -> float | None:
    """Return how long ago the process started, in seconds."""
    try:
        fields = read_short(proc / "stat").rpartition(b")")[2].split()
        since_boot = int(fields[_STARTED]) / os.sysconf("SC_CLK_TCK")
        # The kernel counts in hundredths: a process may seem to start in the future.
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot, 0.0)
    except (OSError, ValueError, IndexError, AttributeError) as error:
        interrupts.pass_on(error)
        return None  # not Linux, or hidden


def is_fork(proc: Path, package: str) -> bool:
    """
    Return whether the process was forked, has executed nothing since, and has a library
    of that *package* in its memory.
    """
    try:
        flags = int(read_short(proc / "stat").rpartition(b")")[2].split()[_FLAGS])
        mapped = (proc / "maps").read_bytes() if flags & _FORKED else b""
    except (OSError, ValueError, IndexError):
        return False  # not Linux, or hidden
    return f"/{package}/".encode() in mapped


def _pages(proc: Path) -> tuple[int, int] | None:
    try:
        size, resident, *_ = read_short(proc / "statm").split()
        return int(size), int(resident)
    except (OSError, ValueError):
        return None


def _garbage() -> list[Family]:
    found = list(enumerate(gc.get_stats()))
    return [
        by_label(metric, {number: of[figure] for number, of in found})
        for metric, figure in _GENERATIONS.items()
    ]


class Scheduling(NamedTuple):
    """Nanoseconds that living threads *ran*, and *waited* for a free processor."""

    ran: int
    waited: int

    def waiting(self, since: Scheduling | None = None) -> float | None:
        """Return which part of runnable time threads waited, *since* or ever."""
        before = since or Scheduling(0, 0)
        ran = max(self.ran - before.ran, 0)
        waited = max(self.waited - before.waited, 0)
        return waited / (ran + waited) if ran + waited else None


def scheduling(proc: Path = Path("/proc/self")) -> Scheduling | None:
    """Return how long threads ran and waited; 10 µs for each thread."""
    ran = waited = 0
    try:
        for number in os.listdir(proc / "task"):  # noqa: PTH208 - names only
            try:
                read = read_short(proc / "task" / number / "schedstat")
                first, second, *_ = read.split()
            except (FileNotFoundError, ProcessLookupError):  # it has just exited
                continue
            ran, waited = ran + int(first), waited + int(second)
    except (OSError, ValueError):
        return None
    return Scheduling(ran, waited) if ran else None
