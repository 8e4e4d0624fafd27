"""Last known state of the persistent cache's directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from jaxmon.agent.cache import directory as cache_directory
from jaxmon.agent.cache.directory import DirectoryScan
from jaxmon.agent.jaxlink.cache import SUFFIX, JaxCache
from jaxmon.clocks import monotonic


HUNG_SECONDS = 60.0
"""A scan that takes longer counts as hung."""

# Time between background scans: a hundred times the duration of the last one.
_SHARE = 0.01

# Entries whose path is remembered; five are opened per scan.
_REMEMBERED = 1000


class DirectoryScanner:
    """
    Scans the directory on request and keeps the result.

    Args:
        jax: state of JAX's cache, and how to read an entry.
        scan: scans a directory.
        clock: seconds, to detect a hung scan.
    """

    def __init__(
        self,
        jax: JaxCache,
        *,
        scan: Callable[..., DirectoryScan] = cache_directory.scan,
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
        """
        Scan now, on this thread, which hangs if the directory does.

        Args:
            sought: keys that missed, by module.
            hits: number of cache hits so far.
        """
        directory = self._jax.directory
        if directory is None or not cache_directory.is_local(directory):
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
        from jaxmon.agent.cache import cache_entry  # noqa: PLC0415 - few move a cache

        found = {}
        for key in keys:
            if key not in self._made_under:
                file = Path(directory, key + SUFFIX)
                path = cache_entry.creation_directory(file, self._jax.decompress)
                self._made_under[key] = path
            path = self._made_under[key]
            if path is None or os.path.normpath(path) != os.path.normpath(directory):
                found[key.rpartition("-")[0]] = path
        return found
