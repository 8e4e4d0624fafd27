"""Whether the memory of devices has room for copies and a second set of outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from jaxmon.agent.checks.turns import Turns
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arrays import shard_bytes


# Fraction of a device's memory that must stay free.
_SPARE = 0.2


def bytes_by_device(arrays: Iterable[Any]) -> Counter[Any]:
    """
    Return the bytes of *arrays* on each device of this process. Costs a few
    microseconds per array, and reads nothing from a device.
    """
    found: Counter[Any] = Counter()
    for array in arrays:
        size = shard_bytes(array)
        for device in array.sharding.addressable_devices:
            found[device] += size
    return found


def has_room(needed: Counter[Any]) -> bool:
    """
    Return whether each device has room for the bytes *needed* with a fifth of its
    memory still free. A device that does not report its memory counts as empty.
    """
    for device, size in needed.items():
        stats = device.memory_stats() or {}
        limit, used = stats.get("bytes_limit"), stats.get("bytes_in_use", 0)
        if limit and used + size > (1 - _SPARE) * limit:
            return False
    return True


class Room:
    """
    The memory that a re-run may take.

    Args:
        limit: bytes per device.
        turns: gets the reason if there is not enough.
    """

    def __init__(self, limit: int, turns: Turns) -> None:
        self._limit = limit
        self._turns = turns

    def fits(self, function: Function, returned: Iterable[Any], *, sets: int) -> bool:
        """Return whether *sets* copies of what a call *returned* fit."""
        needed = bytes_by_device(returned)
        for device in needed:
            needed[device] *= sets
        if max(needed.values(), default=0) > self._limit:
            self._turns.refuse(function, "too_large")
            return False
        if not has_room(needed):
            self._turns.postpone(function, "little_memory")
            return False
        return True
