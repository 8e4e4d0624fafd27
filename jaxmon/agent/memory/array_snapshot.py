"""Live array snapshots and their differences."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass
from typing import Any

from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.memory.live import count_buffers, group_arrays


@dataclass(frozen=True, slots=True)
class Growth:
    """
    Args:
        bytes: growth on all local devices, negative if arrays were freed.
        arrays: change in the number of arrays by type.
    """

    bytes: int
    arrays: dict[str, int]


@dataclass(frozen=True, slots=True)
class ArraySnapshot:
    """
    Args:
        arrays: number of live arrays by type, for example ``float32[32,128]``.
        sizes: bytes of these on all local devices.
    """

    arrays: Counter[str]
    sizes: Counter[str]

    def since(self, before: ArraySnapshot) -> Growth:
        """Return the difference from *before*."""
        grown = {
            kind: size
            for kind in {**self.sizes, **before.sizes}
            if (size := self.sizes[kind] - before.sizes[kind])
        }
        return Growth(
            sum(grown.values()),
            {
                kind: self.arrays[kind] - before.arrays[kind]
                for kind in sorted(grown, key=lambda one: (-grown[one], one))
            },
        )


def snapshot_arrays(jax: Any, guard: Guard) -> ArraySnapshot:
    """
    Collect garbage and take a snapshot of the remaining live arrays.

    Costs some microseconds per array. Does not initialise JAX's backends: until the
    program does, there are no arrays.
    """
    arrays, sizes = Counter[str](), Counter[str]()
    gc.collect()
    if not backends.initialised(jax):
        return ArraySnapshot(arrays, sizes)
    groups = Counter(group_arrays(jax.live_arrays()))
    for kind, device, count in count_buffers(jax, guard, groups):
        name = f"{kind.dtype}[{','.join(map(str, kind.shape))}]"
        arrays[name] += count if device == kind.devices[0] else 0
        sizes[name] += kind.shard_bytes * count
    return ArraySnapshot(arrays, sizes)
