"""
Where arrays are, in words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxmon.agent.compiling.values import device_text, mesh_text, text_of


class Placement(NamedTuple):
    """
    Where a committed array is.
    """

    text: str
    devices: int
    hash: int


def placement_of(sharding: Any) -> Placement:
    """
    Return where *sharding* puts an array, in words.
    """
    devices = sharding.device_set
    single = len(devices) == 1
    named = type(sharding).__name__ == "NamedSharding"
    if single:
        text = device_text(next(iter(devices)))
        # A mesh of one device is more than the device to a program, since 0.5; how an
        # array is spread over it is nothing.
        text = f"{text} on {mesh_text(sharding.mesh)}" if named else text
    elif named:
        text = f"{_spec(sharding.spec)} on {mesh_text(sharding.mesh)}"
    else:
        text = f"{type(sharding).__name__} on {len(devices)} devices"
    memory = getattr(sharding, "memory_kind", None)
    if memory not in (None, "device", "unpinned_host"):
        text = f"{text} in {memory}"
    return Placement(text, len(devices), 0 if single else hash(sharding))


def _spec(spec: Any) -> str:
    parts = ", ".join(text_of(part) for part in spec)
    return f"P({parts})"
