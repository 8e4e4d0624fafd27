"""On which file system a directory is, without touching it: it may hang."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple


# Of these, all hosts see the same files.
_SHARED = (
    *("nfs", "lustre", "ceph", "gpfs", "beegfs", "cifs", "smb", "9p", "virtiofs"),
    *("fuse.", "wekafs", "glusterfs", "afs", "pvfs", "orangefs"),
)
_MOST_BYTES = 1 << 20


class Place(NamedTuple):
    """
    Where a directory is.

    Attributes:
        path: of the directory; on a file system that hosts share, what is mounted, so
            that it is the same wherever that is mounted.
        kind: of the file system, such as ``ext4``; empty if unknown.
    """

    path: str
    kind: str


class Mounts:
    """The mounted file systems of this process, of the ``proc`` below *root*."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._path = root / "proc/self/mountinfo"
        self._known: dict[str, Place] = {}

    def of(self, directory: str) -> Place:
        """Return where *directory* is; once for each, as mounts hardly change."""
        if directory not in self._known:
            self._known = {directory: self._find(os.path.abspath(directory))}  # noqa: PTH100 - follows no link
        return self._known[directory]

    def _find(self, path: str) -> Place:
        best, place = "", Place(path, "")
        for line in self._lines():
            fields, _, source = line.partition(" - ")
            mount, kind = fields.split(" "), source.split(" ")
            if len(mount) < 5 or len(kind) < 2:  # noqa: PLR2004 - as in proc(5)
                continue
            inner, point = _unescaped(mount[3]), _unescaped(mount[4])
            below = path == point or path.startswith(f"{point.rstrip('/')}/")
            # A later one hides an earlier one at the same point.
            if not below or len(point) < len(best):
                continue
            best, place = point, Place(path, kind[0])
            if kind[0].startswith(_SHARED):
                rest = path[len(point.rstrip("/")) :]
                whole = f"{inner.rstrip('/')}{rest}"
                place = Place(f"{_unescaped(kind[1])} {whole or '/'}", kind[0])
        return place

    def _lines(self) -> list[str]:
        try:
            with self._path.open(encoding="utf-8", errors="replace") as file:
                return file.read(_MOST_BYTES).splitlines()
        except OSError:
            return []


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
