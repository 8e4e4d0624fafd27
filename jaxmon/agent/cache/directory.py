"""Bounded scan of the persistent cache's directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from jaxmon.agent.jaxlink.cache import SUFFIX, module_of
from jaxmon.clocks import monotonic


# Beyond either limit, size and number of entries are not reported.
_MOST_FILES = 100_000
_SECONDS = 5.0

_KEYS = 5


class DirectoryScan(NamedTuple):
    """
    Result of a directory scan.

    Attributes:
        entries: number of cached programs, `None` if they could not be counted.
        size: their total size in bytes, `None` likewise.
        free: free bytes on its file system, `None` if unknown.
        problem: why the directory is unusable, `None` if it is usable.
        elsewhere: some entries of the modules sought, under other keys.
    """

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
    Scan the directory at *path*. May block as long as the file system hangs.

    Args:
        path: a local directory.
        sought: keys that were not found there, by module.
        writes: whether this process writes to the cache.
        clock: seconds; the scan stops after 5.
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
