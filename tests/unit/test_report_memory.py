"""Devices whose memory is in order, however full it looks."""

import pytest

from tests.helpers.findings import GIB, findings


# With preallocation, the pool is all that JAX may use, and the limit.
PREALLOCATED = {"device": 0, "in_use": 40 * GIB, "limit": 60 * GIB, "pool": 60 * GIB}
BLOCKS = {"largest_free_block": 2 * GIB, "largest_allocation": 8 * GIB}
HEALTHY: dict[str, dict[str, float]] = {
    "preallocated": {
        **PREALLOCATED,
        "largest_free_block": 18 * GIB,
        "largest_allocation": 8 * GIB,
    },
    "a pool that may still grow": {**PREALLOCATED, **BLOCKS, "pool": 48 * GIB},
    "little is free, in small blocks": {
        **PREALLOCATED,
        **BLOCKS,
        "in_use": 53 * GIB,
    },
    "only small arrays": {
        **PREALLOCATED,
        "largest_free_block": 2 * GIB,
        "largest_allocation": GIB,
    },
    "blocks unknown, as on TPUs": {"device": 0, "in_use": 4 * GIB, "limit": 16 * GIB},
    "nothing known, as on the CPU": {"device": 0},
    "a batch size that uses the device": {**PREALLOCATED, "in_use": 52 * GIB},
    "no limit": {"device": 0, "in_use": 4 * GIB, **BLOCKS, "pool": 8 * GIB},
}


@pytest.mark.parametrize("name", HEALTHY)
def test_memory_in_order_has_no_finding(name: str) -> None:
    """
    Free memory counts as fragmented only if what was allocated once would not fit
    again; a pool that takes the device's memory is not in use.
    """
    assert findings(None, memory={"devices": [HEALTHY[name]]}) == []


def test_fragmented_memory_is_found() -> None:
    """Much is free, in blocks that are smaller than what the program allocates."""
    (finding,) = findings(None, memory={"devices": [{**PREALLOCATED, **BLOCKS}]})

    assert finding.topic == "fragmentation"
