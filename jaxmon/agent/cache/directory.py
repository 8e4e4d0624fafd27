"""
The persistent cache's directory: bounded scans on a thread of ours, and the path under
which an entry was created.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from jaxmon.agent.jaxlink.cache import SUFFIX, XLA_CACHES, JaxCache, module_of
from jaxmon.clocks import monotonic
from jaxmon.tuples import NamedTuple


# An entry contains XLA's options, including paths within the cache directory.
_PATH = rb"(/[\x20-\x7e]*?)/(?:%s)" % "|".join(XLA_CACHES).encode()

# The part of an entry that is read is decompressed in memory.
_MOST_BYTES = 32 << 20
# Beyond either limit, size and number of entries are not reported.
_MOST_FILES = 100_000
_SECONDS = 5.0
_KEYS = 5
HUNG_SECONDS = 60.0
"""A scan that takes longer counts as hung."""
# Time between background scans: a hundred times the duration of the last one.
_SHARE = 0.01
# Entries whose path is remembered; five are opened per scan.
_REMEMBERED = 1000


def creation_directory(file: Path, decompress: Callable[[bytes], bytes]) -> str | None:
    """
    Return the directory under which *file* was created; `None` if over 32 MiB, too.
    """
    try:
        if file.stat().st_size > _MOST_BYTES:
            return None
        found = re.search(_PATH, decompress(file.read_bytes()))
    except Exception:  # noqa: BLE001 - each compression has errors of its own
        return None
    return None if found is None else os.fsdecode(found[1])


class DirectoryScan(NamedTuple):
    """Result of a scan; *elsewhere* are entries of modules sought, under other keys."""

    entries: int | None = None
    size: int | None = None
    free: int | None = None
    problem: str | None = None
    elsewhere: tuple[str, ...] = ()


def is_local(path: str) -> bool:
    """Return whether *path* is a local path, not a URL such as ``gs://``."""
    return "://" not in path


def scan(
    path: str,
    *,
    sought: Mapping[str, Collection[str]],
    writes: bool,
    clock: Callable[[], float] = monotonic,
) -> DirectoryScan:
    """
    Scan the local directory at *path*, for 5 seconds of *clock* at most; the keys
    *sought*, by module, were not found there. May block as long as the file system
    hangs.
    """
    entries, size = 0, 0
    elsewhere: set[str] = set()
    complete = True
    give_up = clock() + _SECONDS
    try:
        with os.scandir(path) as found:
            for number, entry in enumerate(found):
                if number >= _MOST_FILES or clock() > give_up:
                    complete = False
                    break
                if not entry.name.endswith(SUFFIX):
                    continue
                key = entry.name.removesuffix(SUFFIX)
                module = module_of(key)
                if key not in sought.get(module, (key,)) and len(elsewhere) < _KEYS:
                    elsewhere.add(key)
                try:
                    size += entry.stat().st_size
                except FileNotFoundError:  # evicted since
                    continue
                entries += 1
    except FileNotFoundError:
        return DirectoryScan(problem="it does not exist")
    except NotADirectoryError:
        return DirectoryScan(problem="it is not a directory")
    except OSError as error:
        return DirectoryScan(problem=f"it cannot be read: {error.strerror}")
    problem = None
    if writes and not os.access(path, os.W_OK | os.X_OK):
        problem = "this process cannot write to it"
    return DirectoryScan(
        entries=entries if complete else None,
        size=size if complete else None,
        free=_free(path),
        problem=problem,
        elsewhere=tuple(sorted(elsewhere)),
    )


def _free(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


class DirectoryScanner:
    """Scans the directory on request and keeps the result; knows if a scan hangs."""

    def __init__(
        self,
        jax: JaxCache,
        *,
        scan: Callable[..., DirectoryScan] = scan,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._jax = jax
        self._scan, self._clock = scan, clock
        self._listing = DirectoryScan()
        self._elsewhere: dict[str, str | None] = {}
        self._made_under: dict[str, str | None] = {}
        self._since: float | None = None
        self._rests_until = 0.0

    @property
    def may_rescan(self) -> bool:
        """
        Whether another scan is cheap enough, judging by how long the last one took.

        Each program compiled in a cold start requests a scan; thousands of scans of a
        large or remote directory would prolong the cold start.
        """
        return self._clock() >= self._rests_until

    @property
    def hung(self) -> bool:
        """Whether a scan in progress is hung."""
        since = self._since
        return since is not None and self._clock() - since > HUNG_SECONDS

    @property
    def listing(self) -> DirectoryScan:
        """Result of the last scan; empty while the directory is hung."""
        return DirectoryScan() if self.hung else self._listing

    @property
    def elsewhere(self) -> Mapping[str, str | None]:
        """Programs created under a different path, by module, with that path."""
        return self._elsewhere

    @property
    def problem(self) -> str | None:
        """Why the directory is unusable, `None` if it is usable."""
        if self.hung:
            return f"it has not responded for more than {HUNG_SECONDS:.0f} s"
        # JAX creates the directory when it first needs it.
        return self._listing.problem if self._jax.open_attempted else None

    def scan(self, sought: Mapping[str, Collection[str]], *, hits: int) -> None:
        """Scan now, on this thread, which hangs if the directory does."""
        directory = self._jax.directory
        if directory is None or not is_local(directory):
            self._listing, self._elsewhere = DirectoryScan(), {}
            return
        self._since = began = self._clock()
        try:
            writes = self._jax.process == 0
            self._listing = self._scan(directory, sought=sought, writes=writes)
            # A single hit shows that the path is right.
            suspects = () if hits else self._listing.elsewhere
            self._elsewhere = self._moved(directory, suspects)
        finally:
            self._since = None
            now = self._clock()
            self._rests_until = now + (now - began) / _SHARE

    def _moved(self, directory: str, keys: Collection[str]) -> dict[str, str | None]:
        """Return those of *keys* not created under *directory*, by module."""
        if not keys or not self._jax.key_includes_path():
            return {}
        if len(self._made_under) > _REMEMBERED:
            self._made_under.clear()
        found = {}
        for key in keys:
            if key not in self._made_under:
                file = Path(directory, key + SUFFIX)
                path = creation_directory(file, self._jax.decompress)
                self._made_under[key] = path
            path = self._made_under[key]
            if path is None or os.path.normpath(path) != os.path.normpath(directory):
                found[key.rpartition("-")[0]] = path
        return found
