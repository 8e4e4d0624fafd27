"""Text for array placements."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink.meshes import device_text, mesh_text
from jaxmon.agent.jaxlink.ownership import is_class
from jaxmon.agent.jaxlink.shardings import kind_of, order_of
from jaxmon.agent.recompiles.signatures import text_of


class Placement(NamedTuple):
    """
    Placement of a committed array.

    Attributes:
        text: as text, without the memory kind.
        devices: number of devices.
        order: a hash of the devices and their order.
        hash: of the whole placement; differs if JAX treats two as different.
        memory: memory kind, if not the default of the devices.
    """

    text: str
    devices: int
    order: int
    hash: int
    memory: str = ""

    def __str__(self) -> str:
        return self.text + self.memory


def placement_of(sharding: Any) -> Placement:
    """Describe the placement of *sharding*. User-defined classes are not called."""
    kind = type(sharding)
    if not is_class(kind):
        return Placement(name_of(kind), 0, 0, id(sharding))
    devices = sharding.device_set
    single = len(devices) == 1
    named = kind_of(kind) == "named sharding"
    order = 0 if single else order_of(sharding)
    whole = 0 if single else hash(sharding)
    first = next(iter(devices))
    if single:
        text = device_text(first)
        # Since 0.5, a mesh of one device is different from the device; the partitioning
        # over it makes no difference.
        text = f"{text} on {mesh_text(sharding.mesh)}" if named else text
    elif named:
        text = f"{text_of(sharding.spec)} on {mesh_text(sharding.mesh)}"
    else:
        text = f"{kind.__name__} on {len(devices)} devices"
    kept = sharding.memory_kind
    special = kept is not None and kept != _default_memory(first)
    memory = f" in {kept}" if special else ""
    return Placement(text, len(devices), order, whole, memory)


def _default_memory(device: Any) -> str | None:
    try:
        return str(device.default_memory().kind)
    except Exception as error:  # noqa: BLE001 - a plugin need not know of memories
        interrupts.pass_on(error)
        return None
