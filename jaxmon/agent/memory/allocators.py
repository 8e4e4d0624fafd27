"""Device allocator statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxmon import catalog
from jaxmon.exposition.families import Family, Sample, series


_KINDS = {
    "in_use": "bytes_in_use",
    "peak": "peak_bytes_in_use",
    "limit": "bytes_limit",
    "reserved": "bytes_reserved",
    "largest_allocation": "largest_alloc_size",
    "pool": "pool_bytes",
    "largest_free_block": "largest_free_block_bytes",
}


def sizes(stats: Mapping[str, int]) -> dict[str, int]:
    """
    Return the bytes in *stats* by kind, as `catalog.DEVICE_MEMORY_BYTES` names them.

    Args:
        stats: JAX's statistics of a device; those that its allocator does not keep are
            missing or negative.
    """
    found = {
        kind: stats[key] for kind, key in _KINDS.items() if stats.get(key, -1) >= 0
    }
    if not found.get("largest_free_block"):
        # Allocators of older releases never compute it and return 0, which is correct
        # only if everything they hold is in use.
        held = found.get("pool", found.get("limit"))
        if held is None or held != found.get("in_use"):
            found.pop("largest_free_block", None)
    return found


def families(stats_by_device: Mapping[Any, Mapping[str, int]]) -> list[Family]:
    """Return the metrics of each device; a CPU has none."""
    memory, allocations = catalog.DEVICE_MEMORY_BYTES, catalog.DEVICE_ALLOCATIONS
    held: list[Sample] = []
    counts: list[Sample] = []
    for device, stats in stats_by_device.items():
        held += [
            (series(memory, device.id, kind), value)
            for kind, value in sizes(stats).items()
        ]
        if stats.get("num_allocs", -1) >= 0:
            counts.append((series(allocations, device.id), stats["num_allocs"]))
    return [Family(memory, held), Family(allocations, counts)]
