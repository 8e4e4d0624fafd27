"""Classifies JAX's objects: meshes, devices, shardings, specifications, trees."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink.ownership import is_class


Kind: TypeAlias = Literal[
    "mesh", "device", "spec", "tree", "sharding", "named sharding"
]

# By the names of JAX's classes.
_KINDS: dict[str, Kind] = {
    "AbstractMesh": "mesh",
    "Mesh": "mesh",
    "Device": "device",
    "P": "spec",  # since 0.10
    "PartitionSpec": "spec",
    "PyTreeDef": "tree",
    "GSPMDSharding": "sharding",
    "SingleDeviceSharding": "sharding",
    "NamedSharding": "named sharding",
}


def kind_of(kind: type) -> Kind | None:
    """Return the category of the class *kind*, `None` if it is not JAX's."""
    return _KINDS.get(name_of(kind).rpartition(".")[2]) if is_class(kind) else None


def order_of(sharding: Any) -> int:
    """Return a hash of the devices of JAX's *sharding* and their order."""
    return hash(sharding._internal_device_list)  # noqa: SLF001 - public ones are sets
