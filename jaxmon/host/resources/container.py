"""
cgroup metrics of this process's container or service, and the memory that it has.

Only a process inside can read them reliably: a sidecar is in its own container. Metrics
require cgroup version 2, the unified hierarchy; see
https://docs.kernel.org/admin-guide/cgroup-v2.html for the files.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from jaxmon import catalog
from jaxmon.exposition.families import Family, by_label, gauge


_MICROSECONDS = 1e6
_LEVELS = 64


class ContainerFamilies:
    """Reads the cgroup (v2) of this process, in 0.2 ms, below *root*."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def collect(self) -> list[Family]:
        """Return the current values; thread-safe."""
        group = _group(self._root)
        if group is None or not (group / "cgroup.events").exists():
            return []
        found = [*_memory(self._root, group), *_cpu(self._root, group)]
        pressure = {
            (which, kind): seconds
            for which in ("cpu", "memory", "io")
            for kind, seconds in stalled(group / f"{which}.pressure")
        }
        found.append(by_label(catalog.CONTAINER_PRESSURE_SECONDS, pressure))
        return [family for family in found if family.samples]


def stalled(path: Path) -> Iterator[tuple[str, float]]:
    """
    Yield ``some`` (a task waited at least) and ``full`` (all did) with the seconds of
    stalls, from a file of pressure stall information (PSI).
    """
    for line in _read(path).splitlines():
        kind, _, rest = line.partition(" ")
        figures = dict(part.split("=", 1) for part in rest.split() if "=" in part)
        with contextlib.suppress(ValueError, KeyError):
            yield kind, int(figures["total"]) / _MICROSECONDS


def group_of(pid: int, root: Path = Path("/")) -> Path | None:
    """Return the cgroup of process *pid*, `None` if it is not visible."""
    return _group(root, str(pid))


def oom_kills(group: Path) -> int | None:
    """Return how many processes of *group* the kernel has killed for memory so far."""
    return _table(group / "memory.events").get("oom_kill")


def host_oom_kills(root: Path = Path("/")) -> int | None:
    """Return how many of the host the kernel has killed for memory so far."""
    found = re.search(r"(?m)^oom_kill (\d+)$", _read(root / "proc/vmstat"))
    return None if found is None else int(found[1])


def _group(root: Path, process: str = "self") -> Path | None:
    """Return the directory of a process's group, `None` at the root of all groups."""
    for line in _read(root / "proc" / process / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if number == "0" and not controllers:
            mounted = root / "sys/fs/cgroup"
            inside = mounted / name.strip("/")
            # A container without a private cgroup namespace sees a name that is not
            # mounted there; its own cgroup is mounted.
            return inside if inside.is_dir() else mounted
    return None


def _memory(root: Path, group: Path) -> list[Family]:
    used = _number(group / "memory.current")
    if used is None:
        return []
    stat, events = _table(group / "memory.stat"), _table(group / "memory.events")
    found = [gauge(catalog.CONTAINER_MEMORY_USED_BYTES, used)]
    if (inactive := stat.get("inactive_file")) is not None:
        working_set = max(used - inactive, 0)
        found.append(gauge(catalog.CONTAINER_MEMORY_WORKING_SET_BYTES, working_set))
    limits = [_number(directory / "memory.max") for directory in _upwards(root, group)]
    if limit := min((value for value in limits if value is not None), default=None):
        found.append(gauge(catalog.CONTAINER_MEMORY_LIMIT_BYTES, limit))
    if (kills := events.get("oom_kill")) is not None:
        found.append(gauge(catalog.CONTAINER_OOM_KILLS, kills))
    return found


def _cpu(root: Path, group: Path) -> list[Family]:
    stat = _table(group / "cpu.stat")
    found = []
    spent = {
        mode: stat[f"{mode}_usec"] / _MICROSECONDS
        for mode in ("user", "system")
        if f"{mode}_usec" in stat
    }
    if spent:
        found.append(by_label(catalog.CONTAINER_CPU_SECONDS, spent))
    if (throttled := stat.get("throttled_usec")) is not None:
        seconds = throttled / _MICROSECONDS
        found.append(gauge(catalog.CONTAINER_CPU_THROTTLED_SECONDS, seconds))
    limits = [_cores(directory / "cpu.max") for directory in _upwards(root, group)]
    if cores := min((value for value in limits if value is not None), default=None):
        found.append(gauge(catalog.CONTAINER_CPU_LIMIT, cores))
    return found


def _upwards(root: Path, group: Path) -> Iterable[Path]:
    """Yield *group* and the groups around it: the tightest limit of all holds."""
    mounted = root / "sys/fs/cgroup"
    for _ in range(_LEVELS):
        yield group
        if group == mounted:
            return
        group = group.parent


def _cores(path: Path) -> float | None:
    """Return how many cores ``cpu.max`` allows, `None` for no limit."""
    quota, _, period = _read(path).strip().partition(" ")
    with contextlib.suppress(ValueError, ZeroDivisionError):
        return int(quota) / int(period)
    return None


def _table(path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in _read(path).splitlines():
        name, text, *_ = [*line.split(), "", ""]
        with contextlib.suppress(ValueError):
            found[name] = int(text)
    return found


def _number(path: Path) -> int | None:
    """Return the number in *path*, `None` for none, and for ``max``."""
    with contextlib.suppress(ValueError):
        number = int(_read(path))
        return number if number < _UNLIMITED else None
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):  # not there, or gone with its group
        return ""


# Version 1 of cgroups says "no limit" with a number near the largest one.
_UNLIMITED = 1 << 60


def memory(root: Path = Path("/")) -> dict[str, int | None]:
    """Return what `HostMemory` has, in 0.1 ms; *root* has ``proc`` and ``sys``."""
    virtual = resident = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = (root / "proc/self/statm").read_text().split()
        size = os.sysconf("SC_PAGE_SIZE")
        virtual, resident = int(pages[0]) * size, int(pages[1]) * size
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    used, limit = _cgroup(root)
    available = _table(root / "proc/meminfo").get("MemAvailable:")
    return {
        "resident": resident,
        "virtual": virtual,
        "virtual_limit": None if soft == resource.RLIM_INFINITY else soft,
        "available": None if available is None else available * 1024,
        "cgroup": used,
        "cgroup_limit": limit,
    }


def _cgroup(root: Path) -> tuple[int | None, int | None]:
    """Return memory in use and limit of the cgroup around us with the least left."""
    found = []
    for directory, names in _places(root):
        limit, used = _number(directory / names.limit), _number(directory / names.used)
        if limit is not None and used is not None:
            droppable = _table(directory / "memory.stat").get(names.droppable, 0)
            used = max(used - droppable, 0)
            found.append((limit - used, used, limit))
    return min(found)[1:] if found else (None, None)


class _Names(NamedTuple):
    used: str
    limit: str
    droppable: str


_V2 = _Names("memory.current", "memory.max", "inactive_file")
_V1 = _Names("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file")


def _places(root: Path) -> list[tuple[Path, _Names]]:
    found: list[tuple[Path, _Names]] = []
    mounted = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, name = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            at, names = mounted, _V2
        elif "memory" in controllers.split(","):
            at, names = mounted / "memory", _V1
        else:
            continue
        # A container often sees its own cgroup as the root, under another name.
        path = at / name.strip("/")
        while path != at and len(found) < 64:  # noqa: PLR2004 - levels of cgroups
            found.append((path, names))
            path = path.parent
        found.append((at, names))
    return found
