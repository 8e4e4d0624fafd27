"""Text for devices and meshes."""

from __future__ import annotations

from typing import Any

from jaxmon.agent.inspection import name_of


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
