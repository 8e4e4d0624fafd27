"""
Live array enumeration while the program keeps creating, donating and deleting arrays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.arrays import device_bytes


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
            key = (array.sharding, array.shape, array.dtype, device_bytes(array))
        except RuntimeError as error:  # deleted or donated since
            interrupts.pass_on(error)
            continue
        del array
        kind = known.get(key)
        if kind is None:
            kind = known[key] = _kind(*key)
        yield kind


def count_buffers(
    jax: Any, guard: Guard, groups: Mapping[ArrayGroup, int]
) -> Iterator[tuple[ArrayGroup, Any, int]]:
    """
    Yield each of *groups*, a device, and how many buffers its arrays have there.

    Arrays may share a buffer: an array, and what a jitted function that captures it
    holds. JAX's memory profile, 1 µs per live array, has each buffer once; without one,
    which is counted as a failure, each array counts. Pointers are not compared: reading
    one holds the buffer, and a call that donates it meanwhile would fail.

    Args:
        jax: the module.
        guard: counts failures.
        groups: number of arrays of each group, counted just before.
    """
    buffers = _buffers(jax, guard)
    alike: defaultdict[tuple[str, int], list[tuple[ArrayGroup, Any]]]
    alike = defaultdict(list)
    for kind in groups:
        for device in kind.devices:
            alike[str(device), kind.shard_bytes].append((kind, device))
    for key, kinds in alike.items():
        count = sum(groups[kind] for kind, _ in kinds)
        shared = 0 if buffers is None else count - buffers[key]
        types = set()
        for kind, device in kinds:
            # An array that is the only one of its type shares with none.
            most = groups[kind] - ((kind.dtype, kind.offloaded) not in types)
            types.add((kind.dtype, kind.offloaded))
            fewer = max(min(shared, most), 0)
            shared -= fewer
            yield kind, device, groups[kind] - fewer


def _buffers(jax: Any, guard: Guard) -> Counter[tuple[str, int]] | None:
    """Return the number of buffers by device and size; `None` if it is unknown."""
    from jaxmon.agent.memory import profile as pprof  # noqa: PLC0415 - not before there are arrays

    found = Counter[tuple[str, int]]()
    try:
        for one in pprof.samples_of(jax.profiler.device_memory_profile()).samples:
            if one.kind == "buffer" and one.allocations:
                found[one.device, one.size // one.allocations] += one.allocations
    except Exception as error:  # noqa: BLE001 - contained: arrays are known without it
        interrupts.pass_on(error)
        if not isinstance(error, MemoryError):
            guard.failed("buffers", stays_on=True)
        return None
    return found


def _kind(sharding: Any, shape: tuple[int, ...], dtype: Any, size: int) -> ArrayGroup:
    """
    Return the group of an array.

    Args:
        sharding: of the array.
        shape: of the whole array.
        dtype: of the array.
        size: bytes on all devices of all processes.
    """
    devices = tuple(sharding.addressable_devices)
    return ArrayGroup(
        dtype,
        shape,
        devices,
        size // len(sharding.device_set),
        offloaded=_is_offloaded(sharding, devices),
    )


def _is_offloaded(sharding: Any, devices: tuple[Any, ...]) -> bool:
    kind = getattr(sharding, "memory_kind", None)
    # In older releases, a CPU's own memory has such a name too.
    return (
        kind is not None
        and kind.endswith("host")
        and all(one.default_memory().kind != kind for one in devices)
    )
