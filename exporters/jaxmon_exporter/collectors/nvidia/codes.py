"""NVML return codes, grouped by how to handle them."""

from __future__ import annotations

from typing import Any, TypeAlias


# pynvml has no types; a handle and an event set are opaque pointers.
Nvml: TypeAlias = Any
Handle: TypeAlias = Any
EventSet: TypeAlias = Any

# The device, or the driver, will never be able to.
UNSUPPORTED = {3, 13, 25, 26}
# This device no longer responds; the others may.
LOST = {15: "device_lost", 16: "reset_required", 28: "device_not_found"}
# No device responds; NVML must be initialised again.
DRIVER = {1: "uninitialized", 9: "driver_not_loaded", 12: "library_not_found"}
DRIVER |= {18: "driver_mismatch"}
INVALID_ARGUMENT = 2
NO_PERMISSION = 4
TIMEOUT = 10
# No data now. pynvml raises 0 if NVML has an empty list.
NORMAL_ABSENCE = {0, 6, TIMEOUT, 21, 27}


def failure(code: int, otherwise: str) -> str:
    """Return the reason under which a failed call is counted."""
    return "no_permission" if code == NO_PERMISSION else otherwise
