"""Classifies JAX's meshes, devices, shardings and trees, and words for some of them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from jaxmon.agent.inspection import name_of
from jaxmon.agent.jaxlink.jit import is_class


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


NO_MESH = "no mesh"
"""Text of a mesh without axes, JAX's default since 0.11."""


def device_text(device: Any) -> str:
    """Return ``cpu:0``."""
    return f"{device.platform}:{device.id}"


def mesh_text(mesh: Any) -> str:
    """
    Return text such as ``mesh d=8``; an axis with explicit sharding is ``d=8
    explicit``.

    Args:
        mesh: an instance of a JAX class.
    """
    kinds = getattr(mesh, "axis_types", None)
    if isinstance(kinds, dict):  # up to 0.5: axes by kind
        kinds = None
    shape = mesh.shape
    axes = [
        f"{_name(axis)}={size}{_kind_text(kind)}"
        for (axis, size), kind in zip(
            shape.items(), kinds or (None,) * len(shape), strict=False
        )
    ]
    return f"mesh {','.join(axes)}" if axes else NO_MESH


def _name(axis: object) -> str:
    return axis if type(axis) is str else name_of(type(axis))


def _kind_text(kind: Any) -> str:
    name = str(getattr(kind, "name", "Auto"))
    return "" if name == "Auto" else f" {name.lower()}"
