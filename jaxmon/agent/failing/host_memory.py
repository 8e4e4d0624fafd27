"""
The memory of the host that this process may use, from ``/proc`` and its cgroup.
"""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path


# Version 1 of cgroups says "no limit" with a number near the largest one.
_UNLIMITED = 1 << 60

# With less than this left, nothing is asked for that needs megabytes.
_ROOM_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class HostMemory:
    """
    Bytes; `None` where the system does not tell or sets no limit.

    Attributes:
        resident: memory of this process.
        virtual: its address space.
        virtual_limit: most address space it may have (``ulimit -v``).
        available: what programs on this host can get without swapping.
        cgroup: memory of the container or service that this process is in.
        cgroup_limit: beyond which the kernel kills one of its processes.
    """

    resident: int | None = None
    virtual: int | None = None
    virtual_limit: int | None = None
    available: int | None = None
    cgroup: int | None = None
    cgroup_limit: int | None = None

    @property
    def room(self) -> int | None:
        """
        What is left below the tightest limit.
        """
        pairs = (
            (self.virtual_limit, self.virtual),
            (self.cgroup_limit, self.cgroup),
            (self.available, 0),
        )
        left = [
            limit - used
            for limit, used in pairs
            if limit is not None and used is not None
        ]
        return max(min(left), 0) if left else None

    @property
    def is_tight(self) -> bool:
        """
        Tell whether little is left.
        """
        room = self.room
        return room is not None and room < _ROOM_BYTES


def read(root: Path = Path("/")) -> HostMemory:
    """
    Return the figures as they are now. Costs about 0.1 ms.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
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
        available=_available(root),
        cgroup=used,
        cgroup_limit=limit,
    )


def _available(root: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _cgroup(root: Path) -> tuple[int | None, int | None]:
    """
    Return memory in use and the limit of the innermost cgroup that has one.
    """
    for directory, used, limit in _places(root):
        allowed = _number(directory / limit)
        if allowed is not None:
            return _number(directory / used), allowed
    return None, None


def _places(root: Path) -> list[tuple[Path, str, str]]:
    found: list[tuple[Path, str, str]] = []
    mounted = root / "sys/fs/cgroup"
    lines: list[str] = []
    with contextlib.suppress(OSError, ValueError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        inside = name.strip("/")
        if not controllers:
            at, used, limit = mounted, "memory.current", "memory.max"
        elif "memory" in controllers.split(","):
            at = mounted / "memory"
            used, limit = "memory.usage_in_bytes", "memory.limit_in_bytes"
        else:
            continue
        # A container often sees its own cgroup as the root, under another name.
        path = at / inside
        while path != at and len(found) < 64:  # noqa: PLR2004 - levels of cgroups
            found.append((path, used, limit))
            path = path.parent
        found.append((at, used, limit))
    return found


def _number(path: Path) -> int | None:
    """
    Return the number in *path*, `None` for none, and for ``max``.
    """
    with contextlib.suppress(OSError, ValueError):
        number = int(path.read_text())
        return number if number < _UNLIMITED else None
    return None
