"""Finds the path under which a persistent cache entry was created."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from jaxmon.agent.jaxlink.cache import XLA_CACHES


# XLA's options are within an entry, the paths in the cache's directory among them.
_PATH = re.compile(rb"(/[\x20-\x7e]*?)/(?:%s)" % "|".join(XLA_CACHES).encode())

# What is read of an entry is decompressed in memory.
_MOST_BYTES = 32 << 20


def made_under(file: Path, decompress: Callable[[bytes], bytes]) -> str | None:
    """
    Return the directory under which the entry *file* was made, `None` if the entry
    does not tell, is gone, unreadable, or has more than 32 MiB.

    Args:
        file: where it is.
        decompress: undoes JAX's compression.
    """
    try:
        if file.stat().st_size > _MOST_BYTES:
            return None
        found = _PATH.search(decompress(file.read_bytes()))
    except Exception:  # noqa: BLE001 - each compression has errors of its own
        return None
    return None if found is None else os.fsdecode(found[1])
