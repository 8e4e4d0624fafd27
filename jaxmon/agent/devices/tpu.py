"""
Maps JAX's TPU devices (coordinates) to chips (PCI addresses).

libtpu uses the chips of a host in the order of their device nodes, or those listed in
``TPU_VISIBLE_CHIPS``. If they are inconsistent, no device is identified.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxmon import tpus
from jaxmon.tpus import Chip


def identify(
    devices: Sequence[Any],
    *,
    root: Path = tpus.ROOT,
    environ: Mapping[str, str] = os.environ,
) -> dict[int, Chip]:
    """
    Return the chip of each of *devices* by device id; empty if unknown. Reads some
    sysfs files.

    Args:
        devices: JAX's local TPU devices.
        root: where ``sys`` and ``dev`` are.
        environ: the environment of this process.
    """
    if any(device.local_hardware_id is None for device in devices):
        return {}
    ordered = sorted(devices, key=lambda device: device.local_hardware_id)
    # Two cores of a chip have the same coordinates.
    places = list(dict.fromkeys(_coordinates(device) for device in ordered))
    chips = _visible(tpus.find(root), environ)
    if None in places or len(places) != len(chips):
        return {}
    by_place = dict(zip(places, chips, strict=True))
    return {device.id: by_place[_coordinates(device)] for device in ordered}


def _coordinates(device: Any) -> tuple[int, ...] | None:
    coordinates = getattr(device, "coords", None)
    return None if coordinates is None else tuple(coordinates)


def _visible(chips: list[Chip], environ: Mapping[str, str]) -> list[Chip]:
    for name in ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"):
        if chosen := environ.get(name, "").strip():
            indices = [part.strip() for part in chosen.split(",")]
            known = {str(chip.index): chip for chip in chips}
            return [known[index] for index in indices if index in known]
    return chips
