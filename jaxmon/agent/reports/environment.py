"""The versions that a process runs with, for ``/debug/environment``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from jaxmon.agent.versions import versions


_MOST_PACKAGES = 2000
_MOST_DIRECTORIES = 100
# Directories of installed packages are named NAME-VERSION.dist-info.
_INSTALLED = r"(?i)(?P<name>[a-z0-9][\w.]*)-(?P<version>[\w.+!]+)\.(?:dist|egg)-info"


def environment(jax: Any) -> dict[str, Any]:
    """
    Return interpreter, versions, flags and installed packages.

    Takes a few milliseconds: names of packages come from directory listings, and no
    file of a package is read.
    """
    return {
        "executable": sys.executable or "",
        "prefix": sys.prefix,
        "versions": versions(jax),
        "packages": packages(sys.path),
    }


def packages(path: Sequence[object]) -> dict[str, str]:
    """
    Return the version of each package installed in the directories of *path*; of
    several, the one that is imported.
    """
    found: dict[str, str] = {}
    for entry in list(path)[:_MOST_DIRECTORIES]:
        if not isinstance(entry, str) or len(found) >= _MOST_PACKAGES:
            continue
        try:
            names = sorted(os.listdir(entry or "."))  # noqa: PTH208 - names only
        except (OSError, ValueError):  # an archive, a missing directory
            continue
        for name in names:
            if match := re.fullmatch(_INSTALLED, name):
                package = match["name"].lower().replace("_", "-")
                found.setdefault(package, match["version"])
    return dict(sorted(found.items())[:_MOST_PACKAGES])
