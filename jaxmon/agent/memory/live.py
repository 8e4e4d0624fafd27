"""
Live array enumeration while the program keeps creating, donating and deleting arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.jaxlink.arrays import packed_bytes


class ArrayGroup:
    """
    A group of live arrays of the same type and placement.

    Attributes:
        dtype: JAX's dtype of the arrays.
        shape: of a whole array.
        devices: devices of this process, each with a shard.
        shard_bytes: bytes on each of these.
        offloaded: whether they are in host memory instead of device memory.
    """

    __slots__ = ("devices", "dtype", "offloaded", "shape", "shard_bytes")

    def __init__(
        self,
        dtype: Any,
        shape: tuple[int, ...],
        devices: tuple[Any, ...],
        shard_bytes: int,
        *,
        offloaded: bool,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.devices = devices
        self.shard_bytes = shard_bytes
        self.offloaded = offloaded

    @property
    def bytes(self) -> int:
        """Bytes on all devices of this process."""
        return self.shard_bytes * len(self.devices)


def group_arrays(arrays: list[Any]) -> Iterator[ArrayGroup]:
    """
    Yield the group of each of *arrays*, the same object for arrays of one group.
    Empties *arrays* meanwhile, so that none is kept alive.

    Costs 1 to 4 µs per array. Neither allocates on a device nor waits for one.
    """
    known: dict[tuple[Any, ...], ArrayGroup] = {}
    while arrays:
        array = arrays.pop()
        try:
            if array.is_deleted():
                continue
            dtype = array.dtype
            size = packed_bytes(array, dtype)
            key = (array.sharding, array.shape, dtype, size)
            kind = known.get(key)
            if kind is None:
                kind = known[key] = _kind(array, size)
        except RuntimeError as error:  # deleted or donated since
            interrupts.pass_on(error)
            continue
        del array
        yield kind


def _kind(array: Any, size: int | None) -> ArrayGroup:
    """
    Return the group of *array*.

    Args:
        array: a live array.
        size: bytes on all devices of this process, if not determined by the shape.
    """
    sharding, shape = array.sharding, array.shape
    devices = tuple(sharding.addressable_devices)
    try:
        if size is None:
            shard = math.prod(sharding.shard_shape(shape)) * array.dtype.itemsize
        else:
            shard = size // max(len(devices), 1)
    except ValueError as error:  # the sharding does not divide the shape evenly
        interrupts.pass_on(error)
        shard = array.nbytes // len(sharding.device_set)
    offloaded = _is_offloaded(sharding, devices)
    return ArrayGroup(array.dtype, shape, devices, int(shard), offloaded=offloaded)


def _is_offloaded(sharding: Any, devices: tuple[Any, ...]) -> bool:
    kind = getattr(sharding, "memory_kind", None)
    # In older releases, a CPU's own memory has such a name too.
    return (
        kind is not None
        and kind.endswith("host")
        and all(one.default_memory().kind != kind for one in devices)
    )
