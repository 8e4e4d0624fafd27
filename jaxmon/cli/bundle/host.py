"""Facts about this host for a bundle: machine, kernel, memory, load, disks."""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from jaxmon.version import version


_FILES = ("proc/meminfo", "proc/loadavg", "proc/uptime", "proc/version")
_PRESSURE = ("cpu", "memory", "io")
_MOST_BYTES = 1 << 16


def facts(directories: list[Path], *, root: Path = Path("/")) -> dict[str, Any]:
    """
    Return facts about this host by name; what cannot be read is absent.

    Args:
        directories: whose disks are of interest.
        root: of the kernel's files.
    """
    system = platform.uname()
    return {
        "jaxmon": version(),
        "host": system.node,
        "system": f"{system.system} {system.release}",
        "machine": system.machine,
        "cores": os.cpu_count(),
        "container": (root / ".dockerenv").exists(),
        "disks": {str(one): disk for one in directories if (disk := _disk(one))},
        "nvidia_driver": _text(root / "sys/module/nvidia/version"),
        "files": {name: text for name in _FILES if (text := _text(root / name))},
        "pressure": {
            name: text
            for name in _PRESSURE
            if (text := _text(root / "proc/pressure" / name))
        },
    }


def _disk(directory: Path) -> dict[str, int] | None:
    with suppress(OSError):
        usage = shutil.disk_usage(directory)
        return {"total_bytes": usage.total, "free_bytes": usage.free}
    return None


def _text(path: Path) -> str:
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_BYTES).strip()
    return ""
