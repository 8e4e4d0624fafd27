"""
A minimal NVML reader for agents whose sidecar has no driver access.

It uses ctypes because the agent adds no dependencies to the user's process: pynvml
takes 70 ms and 7 MB, and its state would be shared with the program's own use of it.
Calls release the GIL. A hung call cannot be cancelled.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint, c_ulonglong, c_void_p

from jaxmon.catalog import (
    ACCELERATOR_ENERGY_JOULES,
    ACCELERATOR_INFO,
    ACCELERATOR_MEMORY_SIZE_BYTES,
    ACCELERATOR_MEMORY_USED_BYTES,
    ACCELERATOR_POWER_LIMIT_WATTS,
    ACCELERATOR_POWER_WATTS,
    ACCELERATOR_TEMPERATURE_CELSIUS,
    ACCELERATOR_UP,
    ACCELERATOR_UTILIZATION_RATIO,
)
from jaxmon.exposition.families import Family, gauge


LIBRARY = "libnvidia-ml.so.1"

_MEMORY_V2 = 0x02000028
_LOST = (15, 16, 28)
_TEXT = 96


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


class Nvml:
    """
    An initialised NVML. Not thread-safe.

    Args:
        library: the driver library, by default `LIBRARY`.

    Raises:
        OSError: there is no driver, or it cannot be initialised.
    """

    def __init__(self, library: str | None = None) -> None:
        self._library = ctypes.CDLL(library or LIBRARY)
        code = self._code("nvmlInitWithFlags", 0)
        if code:
            msg = f"NVML initialisation failed: error {code}"
            raise OSError(msg)

    def close(self) -> None:
        """Shut NVML down."""
        self._code("nvmlShutdown")

    def device(self, uuid: str, pci_bus_id: str) -> list[Family]:
        """
        Return NVML's values for a device; ``up 0`` if it is lost, nothing if unknown.
        Values that a device does not support are omitted.
        """
        handle = c_void_p()
        name = uuid.encode()
        code = self._code("nvmlDeviceGetHandleByUUID", name, ctypes.byref(handle))
        if code in _LOST:
            return [gauge(ACCELERATOR_UP, 0, uuid)]
        if code:
            return []
        info = gauge(
            ACCELERATOR_INFO,
            1,
            uuid,
            self._number("nvmlDeviceGetIndex", handle, kind=c_uint, missing=""),
            "nvidia",
            self._text("nvmlDeviceGetName", handle),
            self._text("nvmlSystemGetDriverVersion"),
            pci_bus_id,
        )
        figures = self._figures(handle, uuid)
        if figures is None:
            return [info, gauge(ACCELERATOR_UP, 0, uuid)]
        return [info, gauge(ACCELERATOR_UP, 1, uuid), *figures]

    def _figures(self, handle: c_void_p, uuid: str) -> list[Family] | None:
        """Return the values of a device, `None` if it is lost."""
        found: list[Family] = []
        busy, memory = _Utilization(), _Memory(_MEMORY_V2)
        code = self._code("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(busy))
        if code in _LOST:
            return None
        if not code:
            found.append(gauge(ACCELERATOR_UTILIZATION_RATIO, busy.gpu / 100, uuid))
        if not self._code("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory)):
            found.append(gauge(ACCELERATOR_MEMORY_USED_BYTES, memory.used, uuid))
            found.append(gauge(ACCELERATOR_MEMORY_SIZE_BYTES, memory.total, uuid))
        celsius = c_uint()
        if not self._code("nvmlDeviceGetTemperature", handle, 0, ctypes.byref(celsius)):
            found.append(
                gauge(ACCELERATOR_TEMPERATURE_CELSIUS, celsius.value, uuid, "gpu")
            )
        for metric, call, kind in (
            (ACCELERATOR_POWER_WATTS, "nvmlDeviceGetPowerUsage", c_uint),
            (
                ACCELERATOR_POWER_LIMIT_WATTS,
                "nvmlDeviceGetEnforcedPowerLimit",
                c_uint,
            ),
            (
                ACCELERATOR_ENERGY_JOULES,
                "nvmlDeviceGetTotalEnergyConsumption",
                c_ulonglong,
            ),
        ):
            value = self._number(call, handle, kind=kind, missing=None)
            if isinstance(value, int):
                found.append(gauge(metric, value / 1e3, uuid))
        return found

    def _number(
        self,
        call: str,
        handle: c_void_p,
        *,
        kind: type[c_uint | c_ulonglong],
        missing: str | None,
    ) -> int | str | None:
        value = kind()
        if self._code(call, handle, ctypes.byref(value)):
            return missing
        return value.value

    def _text(self, call: str, *handle: c_void_p) -> str:
        buffer = ctypes.create_string_buffer(_TEXT)
        if self._code(call, *handle, buffer, _TEXT):
            return ""
        return buffer.value.decode("utf-8", "replace")

    def _code(self, call: str, *arguments: object) -> int:
        """Return NVML's return code; 13 if an older driver lacks the function."""
        function = getattr(self._library, call, None)
        if function is None:
            return 13
        code: int = function(*arguments)
        return code
