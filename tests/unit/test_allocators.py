"""What allocators report, and what they do not."""

from dataclasses import dataclass

import pytest

from jaxmon.agent.memory import part as allocators


# As JAX tells it of an H100 that holds its memory from the start.
GPU = {
    "num_allocs": 5,
    "bytes_in_use": 4 << 30,
    "peak_bytes_in_use": 5 << 30,
    "largest_alloc_size": 2 << 30,
    "bytes_limit": 60 << 30,
    "bytes_reserved": 0,
    "peak_bytes_reserved": 0,
    "largest_free_block_bytes": 8 << 30,
    "pool_bytes": 60 << 30,
    "peak_pool_bytes": 60 << 30,
}


@dataclass(frozen=True)
class Device:
    """All that is asked of one."""

    id: int


def test_each_figure_has_a_name() -> None:
    """A device with much memory free, but in small blocks, shows as such."""
    assert allocators.sizes(GPU) == {
        "in_use": 4 << 30,
        "peak": 5 << 30,
        "limit": 60 << 30,
        "reserved": 0,
        "largest_allocation": 2 << 30,
        "pool": 60 << 30,
        "largest_free_block": 8 << 30,
    }


def test_what_is_not_kept_is_not_told() -> None:
    """Missing or negative: no limit is no limit of 0."""
    stats = {"bytes_in_use": 7, "bytes_limit": -1, "num_allocs": -1}

    assert allocators.sizes(stats) == {"in_use": 7}
    memory, allocations = allocators.allocator_families({Device(3): stats})
    assert memory.samples == [
        ('jaxmon_device_memory_bytes{device="3",kind="in_use"}', 7)
    ]
    assert allocations.samples == []


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        # All that it took is in use; it may still take more.
        ({"pool_bytes": 4 << 30}, True),
        # 56 GiB are free, in no block at all: it did not look.
        ({}, False),
        ({"pool_bytes": -1}, False),
        ({"pool_bytes": -1, "bytes_in_use": 60 << 30}, True),
        ({"pool_bytes": -1, "bytes_limit": -1}, False),
    ],
)
def test_no_free_block_is_believed_where_all_is_in_use(figures, told):
    """Older releases have the name, and always 0."""
    stats = {**GPU, "largest_free_block_bytes": 0, **figures}

    assert ("largest_free_block" in allocators.sizes(stats)) is told
