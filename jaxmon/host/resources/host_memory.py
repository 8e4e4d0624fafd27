"""Host memory available to this process, from ``/proc`` and its cgroup."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import NamedTuple


# Version 1 of cgroups says "no limit" with a number near the largest one.
_UNLIMITED = 1 << 60

# With less than this available, operations that need megabytes are skipped.
_ROOM_BYTES = 256 << 20


class HostMemory(NamedTuple):
    """
    Sizes in bytes; `None` if unknown or unlimited. *cgroup* is without file data that
    the kernel would drop, which grows up to any limit and is harmless; *available* is
    without swapping; beyond *cgroup_limit* the kernel kills.
    """

    resident: int | None = None
    virtual: int | None = None
    virtual_limit: int | None = None
    available: int | None = None
    cgroup: int | None = None
    cgroup_limit: int | None = None

    @property
    def room(self) -> int | None:
        """What is left below the tightest limit."""
        pairs = (
            (self.virtual_limit, self.virtual),
            (self.cgroup_limit, self.cgroup),
            (self.available, 0),
        )
        left = [a - b for a, b in pairs if a is not None and b is not None]
        return max(min(left), 0) if left else None

    @property
    def is_tight(self) -> bool:
        """Return whether little memory is available."""
        room = self.room
        return room is not None and room < _ROOM_BYTES


def read(root: Path = Path("/")) -> HostMemory:
    """Return the current values, in about 0.1 ms; *root* has ``proc`` and ``sys``."""
    virtual = resident = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = (root / "proc/self/statm").read_text().split()
        size = os.sysconf("SC_PAGE_SIZE")
        virtual, resident = int(pages[0]) * size, int(pages[1]) * size
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    used, limit = _cgroup(root)
    return HostMemory(
        resident=resident,
        virtual=virtual,
        virtual_limit=None if soft == resource.RLIM_INFINITY else soft,
        available=_entry(root / "proc/meminfo", "MemAvailable:", 1024),
        cgroup=used,
        cgroup_limit=limit,
    )


def _cgroup(root: Path) -> tuple[int | None, int | None]:
    """Return memory in use and limit of the cgroup around us with the least left."""
    found = []
    for directory, names in _places(root):
        limit, used = _number(directory / names.limit), _number(directory / names.used)
        if limit is not None and used is not None:
            droppable = _entry(directory / "memory.stat", names.droppable) or 0
            used = max(used - droppable, 0)
            found.append((limit - used, used, limit))
    return min(found)[1:] if found else (None, None)


class _Names(NamedTuple):
    used: str
    limit: str
    droppable: str


_V2 = _Names("memory.current", "memory.max", "inactive_file")
_V1 = _Names("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file")


def _entry(path: Path, name: str, unit: int = 1) -> int | None:
    """Return the number after *name* in a table, `None` if missing."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, number, *_ = [*line.split(), "", ""]
            if key == name:
                return int(number) * unit
    return None


def _places(root: Path) -> list[tuple[Path, _Names]]:
    found: list[tuple[Path, _Names]] = []
    mounted = root / "sys/fs/cgroup"
    lines: list[str] = []
    with contextlib.suppress(OSError, ValueError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
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


def _number(path: Path) -> int | None:
    """Return the number in *path*, `None` for none, and for ``max``."""
    with contextlib.suppress(OSError, ValueError):
        number = int(path.read_text())
        return number if number < _UNLIMITED else None
    return None
