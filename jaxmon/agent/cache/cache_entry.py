"""Finds the path under which a persistent cache entry was created."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from jaxmon.agent.jaxlink.cache import XLA_CACHES


# An entry contains XLA's options, including paths within the cache directory.
_PATH = rb"(/[\x20-\x7e]*?)/(?:%s)" % "|".join(XLA_CACHES).encode()

# The part of an entry that is read is decompressed in memory.
_MOST_BYTES = 32 << 20


def creation_directory(file: Path, decompress: Callable[[bytes], bytes]) -> str | None:
    """
    Return the cache directory under which the entry *file* was created, `None` if it is
    not recorded, or if the entry is gone, unreadable or larger than 32 MiB.

    Args:
        file: path of the entry.
        decompress: undoes JAX's compression.
    """
    try:
        if file.stat().st_size > _MOST_BYTES:
            return None
        found = re.search(_PATH, decompress(file.read_bytes()))
    except Exception:  # noqa: BLE001 - each compression has errors of its own
        return None
    return None if found is None else os.fsdecode(found[1])
