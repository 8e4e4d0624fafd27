"""
NVIDIA GPUs, read through NVML: two collectors, `collector` and `gpm`.

`collector` finds the devices and reads the values listed in the tables of `calls`, and
Xid errors: a new metric is a row of a table. `gpm` reads GPU activity.
Both open NVML by `session` and represent a GPU, or a MIG device, as a `device`.
"""

from __future__ import annotations

import ctypes


NO_DRIVER = (
    "library_not_found",
    (
        "libnvidia-ml.so.1 not found: no NVIDIA driver on this host, or none passed "
        "into this container"
    ),
)
"""Reason and message."""


def driver_is_here() -> bool:
    """Return whether the driver's library can be loaded, as by pynvml."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True
