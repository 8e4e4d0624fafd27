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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, by_label, gauge


_MICROSECONDS = 1e6
# Version 1 of cgroups says "no limit" with a number near the largest one.
_UNLIMITED = 1 << 60


def families(root: Path = Path("/")) -> list[Family]:
    """Read the cgroup (v2) of this process, in 0.2 ms, below *root*; thread-safe."""
    groups = _groups(root)
    # The root of all groups has no figures of its own.
    if not groups or not (groups[0] / "cgroup.events").exists():
        return []
    spent = _table(groups[0] / "cpu.stat")
    throttled = spent.get("throttled_usec")
    seconds = None if throttled is None else throttled / _MICROSECONDS
    numbers = (*_numbers(groups), (catalog.CONTAINER_CPU_THROTTLED_SECONDS, seconds))
    found = [gauge(of, number) for of, number in numbers if number is not None]
    modes = {
        mode: spent[f"{mode}_usec"] / _MICROSECONDS
        for mode in ("user", "system")
        if f"{mode}_usec" in spent
    }
    found.append(by_label(catalog.CONTAINER_CPU_SECONDS, modes))
    pressure = {
        (which, kind): seconds
        for which in ("cpu", "memory", "io")
        for kind, seconds in stalled(groups[0] / f"{which}.pressure")
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
    return next(iter(_groups(root, str(pid))), None)


def oom_kills(group: Path) -> int | None:
    """Return how many processes of *group* the kernel has killed for memory so far."""
    return _table(group / "memory.events").get("oom_kill")


def host_oom_kills(root: Path = Path("/")) -> int | None:
    """Return how many of the host the kernel has killed for memory so far."""
    found = re.search(r"(?m)^oom_kill (\d+)$", _read(root / "proc/vmstat"))
    return None if found is None else int(found[1])


def _groups(root: Path, process: str = "self", controller: str = "") -> list[Path]:
    """
    Return the directory of a process's group, and of those around it: of version 2, or
    of a *controller* of version 1.
    """
    mounted = root / "sys/fs/cgroup" / controller
    for line in _read(root / "proc" / process / "cgroup").splitlines():
        _, controllers, name = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(","):
            inside = mounted / name.strip("/")
            # A container without a private cgroup namespace sees a name that is not
            # mounted there; its own cgroup is mounted.
            found = [inside, *inside.parents] if inside.is_dir() else [mounted]
            return found[: found.index(mounted) + 1]
    return []


def _numbers(groups: Sequence[Path]) -> Iterator[tuple[Metric, float | None]]:
    used = _number(groups[0] / "memory.current")
    if used is not None:
        yield catalog.CONTAINER_MEMORY_USED_BYTES, used
        inactive = _table(groups[0] / "memory.stat").get("inactive_file")
        working_set = None if inactive is None else max(used - inactive, 0)
        yield catalog.CONTAINER_MEMORY_WORKING_SET_BYTES, working_set
        limit = _least(_number(group / "memory.max") for group in groups)
        yield catalog.CONTAINER_MEMORY_LIMIT_BYTES, limit
        yield catalog.CONTAINER_OOM_KILLS, oom_kills(groups[0])
    cores = _least(_cores(group / "cpu.max") for group in groups)
    yield catalog.CONTAINER_CPU_LIMIT, cores


def _least(limits: Iterable[float | None]) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None) or None


def _cores(path: Path) -> float | None:
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
    found = []
    for controller, (in_use, most, droppable) in _MEMORY.items():
        for group in _groups(root, controller=controller):
            limit, used = _number(group / most), _number(group / in_use)
            if limit is not None and used is not None:
                used -= _table(group / "memory.stat").get(droppable, 0)
                used = max(used, 0)
                found.append((limit - used, used, limit))
    return min(found)[1:] if found else (None, None)


# By controller, which version 2 does not name.
_MEMORY = {
    "": ("memory.current", "memory.max", "inactive_file"),
    "memory": (
        *("memory.usage_in_bytes", "memory.limit_in_bytes"),
        "total_inactive_file",
    ),
}
