"""The files of a bundle, as one compressed archive; what it has of the host."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxmon.version import version


MOST_BYTES = 64 << 20
"""Maximum size of all files together, before compression."""

_MOST_OF_ONE = 16 << 20


@dataclass
class Archive:
    """
    Files by name, and what is missing.

    Args:
        directory: that all files are in.
        moment: Unix time that all files get.
        redacted: removes secrets from a text.
        missing: what could not be collected, and why.
    """

    directory: str
    moment: float
    redacted: Callable[[str], str] = str
    missing: dict[str, str] = field(default_factory=dict)
    _files: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, text: str, *, clean: bool = False) -> None:
        """
        Add a file, without secrets; one that is too large is reported as missing.

        Args:
            name: of the file, with its directory.
            text: of the file.
            clean: whether its secrets are removed already.
        """
        text = text if clean else self.redacted(text)
        data = text.encode("utf-8", "backslashreplace")
        left = MOST_BYTES - sum(map(len, self._files.values()))
        if len(data) > min(left, _MOST_OF_ONE):
            self.missing[name] = f"too large for the bundle: {len(data):,} bytes"
            return
        self._files[name] = data

    def add_json(self, name: str, document: Any) -> None:
        """Add a JSON document, in ASCII."""
        self.add(name, json.dumps(document, indent=1, default=str) + "\n")

    def names(self) -> list[str]:
        """Return the names of its files."""
        return sorted(self._files)

    def packed(self) -> bytes:
        """Return it as a compressed tar archive; files are for their owner only."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name in self.names():
                data = self._files[name]
                entry = tarfile.TarInfo(f"{self.directory}/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(self.moment)
                archive.addfile(entry, io.BytesIO(data))
        return packed.getvalue()


_FILES = ("proc/meminfo", "proc/loadavg", "proc/uptime", "proc/version")
_PRESSURE = ("cpu", "memory", "io")
_MOST_BYTES = 1 << 16


def host_facts(directories: list[Path], *, root: Path = Path("/")) -> dict[str, Any]:
    """Return facts about this host by name; what cannot be read is absent."""
    system = platform.uname()
    return {
        "jaxmon": version(),
        "host": system.node,
        "system": f"{system.system} {system.release}",
        "machine": system.machine,
        "cores": os.cpu_count(),
        "container": (root / ".dockerenv").exists(),
        "disks": {str(path): disk for path in directories if (disk := _disk(path))},
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
