"""
GPU identity: JAX numbers devices as CUDA does; monitoring tools identify them by UUID.

The values come from the CUDA driver that JAX has loaded. No context is created and no
memory allocated: ``cuDeviceGet``, ``cuDeviceGetUuid`` and ``cuDeviceGetPCIBusId`` only
read. NVML cannot be used: its indices differ from CUDA's, and ``CUDA_VISIBLE_DEVICES``
hides some devices.

Maps JAX's TPU devices (coordinates) to chips (PCI addresses). libtpu uses the chips of
a host in the order of their device nodes, or those listed in ``TPU_VISIBLE_CHIPS``. If
they are inconsistent, no device is identified.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import uuid
from collections.abc import Mapping, Sequence
from ctypes import byref
from pathlib import Path
from typing import Any

from jaxmon.host import tpus
from jaxmon.host.tpus import Chip


def chips_of(
    devices: Sequence[Any],
    *,
    root: Path = tpus.ROOT,
    environ: Mapping[str, str] = os.environ,
) -> dict[int, tuple[str, str]]:
    """
    Return UUID and PCI address of each local TPU device by its id; none if sysfs lacks
    them.
    """
    if any(device.local_hardware_id is None for device in devices):
        return {}
    ordered = sorted(devices, key=lambda device: device.local_hardware_id)
    # Two cores of a chip have the same coordinates.
    places = list(dict.fromkeys(_coordinates(device) for device in ordered))
    chips = _visible(tpus.find(root), environ)
    if None in places or len(places) != len(chips):
        return {}
    found = [(chip.uuid, chip.pci_bus_id) for chip in chips]
    by_place = dict(zip(places, found, strict=True))
    return {device.id: by_place[_coordinates(device)] for device in ordered}


def _coordinates(device: Any) -> tuple[int, ...] | None:
    return tuple(getattr(device, "coords", None) or ()) or None


def _visible(chips: list[Chip], environ: Mapping[str, str]) -> list[Chip]:
    for name in ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"):
        if chosen := environ.get(name, "").strip():
            indices = [part.strip() for part in chosen.split(",")]
            by_index = {str(chip.index): chip for chip in chips}
            return [by_index[index] for index in indices if index in by_index]
    return chips


LIBRARY = "libcuda.so.1"

_UUID_BYTES = 16
_PCI_LENGTH = 32


def identify(ordinal: int, library: str | None = None) -> tuple[str, str]:
    """
    Return UUID and address of the GPU with this ``local_hardware_id``, in microseconds,
    empty if unknown: as of NVML, ``GPU-…`` or ``MIG-…``, and sysfs, ``0000:07:00.0``.
    """
    with contextlib.suppress(OSError, AttributeError):  # no driver, or it lacks these
        driver = ctypes.CDLL(library or LIBRARY)
        device = ctypes.c_int()
        if not driver.cuInit(0) and not driver.cuDeviceGet(byref(device), ordinal):
            return _uuid(driver, device), _pci_bus_id(driver, device)
    return "", ""


def _uuid(driver: ctypes.CDLL, device: ctypes.c_int) -> str:
    """Return the UUID of the MIG device, if there is one, else of its GPU."""
    whole = _asked(driver, "cuDeviceGetUuid", device)
    part = _asked(driver, "cuDeviceGetUuid_v2", device)
    found = part or whole
    if found is None:
        return ""
    kind = "MIG" if whole is not None and part not in (None, whole) else "GPU"
    return f"{kind}-{uuid.UUID(bytes=found)}"


def _asked(driver: ctypes.CDLL, name: str, device: ctypes.c_int) -> bytes | None:
    function = getattr(driver, name, None)
    raw = ctypes.create_string_buffer(_UUID_BYTES)
    return raw.raw if function is not None and not function(raw, device) else None


def _pci_bus_id(driver: ctypes.CDLL, device: ctypes.c_int) -> str:
    text = ctypes.create_string_buffer(_PCI_LENGTH)
    if driver.cuDeviceGetPCIBusId(text, _PCI_LENGTH, device):
        return ""
    # CUDA prints the domain with four digits like sysfs, but in capitals.
    return text.value.decode("ascii", "replace").lower()
