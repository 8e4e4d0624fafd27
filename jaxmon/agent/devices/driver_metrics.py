"""
Driver metrics of this process's GPUs, for a sidecar without driver access.

Off by default: we must not be inside a hung driver call in the user's program. If
enabled, one daemon thread queries the driver every few seconds, never a scrape; values
are exported while fresh, and a hung call, which cannot be cancelled, affects only that
thread.

By ctypes, because the agent adds no dependencies to the user's process: pynvml takes 70
ms and 7 MB, and its state would be shared with the program's own use of it. Calls
release the GIL.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint, c_ulonglong, c_void_p
from typing import TYPE_CHECKING, TypeAlias

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.devices import part as identity
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.part import Part
from jaxmon.agent.worker import Worker
from jaxmon.catalog import Metric
from jaxmon.clocks import monotonic
from jaxmon.exposition.families import Family, gauge
from jaxmon.threads import Lock


if TYPE_CHECKING:
    from jaxmon.exposition.plausible import PlausibilityFilter


LIBRARY = "libnvidia-ml.so.1"

_MEMORY_V2 = 0x02000028
_LOST = (15, 16, 28)
_TEXT = 96


_Number: TypeAlias = type[c_uint | c_ulonglong]
_THOUSANDTHS: tuple[tuple[Metric, str, _Number], ...] = (
    (catalog.ACCELERATOR_POWER_WATTS, "nvmlDeviceGetPowerUsage", c_uint),
    (catalog.ACCELERATOR_POWER_LIMIT_WATTS, "nvmlDeviceGetEnforcedPowerLimit", c_uint),
    (
        catalog.ACCELERATOR_ENERGY_JOULES,
        "nvmlDeviceGetTotalEnergyConsumption",
        c_ulonglong,
    ),
)


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("version", c_uint),
        *[(name, c_ulonglong) for name in ("total", "reserved", "free", "used")],
    )


class Nvml:
    """An initialised NVML; `OSError` without a driver that works. Not thread-safe."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        code = self._code("nvmlInitWithFlags", 0)
        if code:
            msg = f"NVML initialisation failed: error {code}"
            raise OSError(msg)

    def close(self) -> None:
        """Shut NVML down."""
        self._code("nvmlShutdown")

    def device(self, uuid: str, pci_bus_id: str) -> list[Family]:
        """Return the supported values; ``up 0`` if it is lost, none if unknown."""
        handle = c_void_p()
        name = uuid.encode()
        code = self._code("nvmlDeviceGetHandleByUUID", name, ctypes.byref(handle))
        if code in _LOST:
            return [gauge(catalog.ACCELERATOR_UP, 0, uuid)]
        if code:
            return []
        index = self._number("nvmlDeviceGetIndex", handle, c_uint)
        info = gauge(
            catalog.ACCELERATOR_INFO,
            1,
            uuid,
            "" if index is None else index,
            "nvidia",
            self._text("nvmlDeviceGetName", handle),
            self._text("nvmlSystemGetDriverVersion"),
            pci_bus_id,
        )
        figures = self._figures(handle, uuid)
        if figures is None:
            return [info, gauge(catalog.ACCELERATOR_UP, 0, uuid)]
        return [info, gauge(catalog.ACCELERATOR_UP, 1, uuid), *figures]

    def _figures(self, handle: c_void_p, uuid: str) -> list[Family] | None:
        found: list[Family] = []
        busy, memory = _Utilization(), _Memory(_MEMORY_V2)
        code = self._code("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(busy))
        if code in _LOST:
            return None
        if not code:
            found.append(
                gauge(catalog.ACCELERATOR_UTILIZATION_RATIO, busy.gpu / 100, uuid)
            )
        if not self._code("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory)):
            found.append(
                gauge(catalog.ACCELERATOR_MEMORY_USED_BYTES, memory.used, uuid)
            )
            found.append(
                gauge(catalog.ACCELERATOR_MEMORY_SIZE_BYTES, memory.total, uuid)
            )
        celsius = c_uint()
        if not self._code("nvmlDeviceGetTemperature", handle, 0, ctypes.byref(celsius)):
            found.append(
                gauge(
                    catalog.ACCELERATOR_TEMPERATURE_CELSIUS, celsius.value, uuid, "gpu"
                )
            )
        for metric, call, kind in _THOUSANDTHS:
            if (value := self._number(call, handle, kind)) is not None:
                found.append(gauge(metric, value / 1e3, uuid))
        return found

    def _number(self, call: str, handle: c_void_p, kind: _Number) -> int | None:
        value = kind()
        return None if self._code(call, handle, ctypes.byref(value)) else value.value

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


EVERY = 5.0
# Nothing is exported afterwards: a gap is better than a stale value.
MAX_AGE = 3 * EVERY
_RETRY_SECONDS = 60.0


class DeviceMetrics(Part):
    """Reads this process's JAX devices by NVML, if enabled, once JAX has some."""

    name = "device_figures"

    def __init__(self, context: Context, *, every: float = EVERY) -> None:
        self._jax = context.jax
        self._wanted = context.settings.device_figures
        self._worker = Worker(
            "device_figures",
            context.scheduler,
            every=every,
            routine=self._query,
            gives_up=False,
        )
        # Held while the driver is queried.
        self._asking = Lock()
        self._nvml: Nvml | None = None
        self._retry = 0.0
        self._warned = False
        self._devices: list[tuple[str, str]] = []
        self._sieve: PlausibilityFilter | None = None
        self._found: tuple[float, list[Family]] | None = None

    def start(self) -> None:
        """Start querying the driver."""
        if self._wanted:
            self._worker.start()

    def stop(self) -> None:
        """Stop querying; a driver call that does not return is abandoned."""
        self._worker.stop()
        self._found = None
        if self._asking.acquire(blocking=False):
            try:
                nvml, self._nvml = self._nvml, None
                if nvml is not None:
                    nvml.close()
            finally:
                self._asking.release()

    def collect(self) -> list[Family]:
        """Return the latest values while they are fresh."""
        found = self._found
        return [] if found is None or monotonic() - found[0] > MAX_AGE else found[1]

    def _query(self) -> None:
        from jaxmon.exposition.plausible import PlausibilityFilter  # noqa: PLC0415

        began = monotonic()
        if began < self._retry or not self._has_devices():
            return
        what = "the driver of this process's devices"
        self._sieve = self._sieve or PlausibilityFilter(log, what)
        with self._asking:
            try:
                self._nvml = self._nvml or Nvml()
            except OSError as error:
                self._retry = began + _RETRY_SECONDS
                if not self._warned:
                    self._warned = True
                    log.warning("jaxmon cannot export device metrics: %s", error)
                return
            found = [
                family
                for uuid, pci_bus_id in self._devices
                for family in self._nvml.device(uuid, pci_bus_id)
            ]
            if not found:  # the driver is gone; start it again later
                self._nvml.close()
                self._nvml = None
                self._retry = began + _RETRY_SECONDS
        self._found = began, self._sieve.sift(found)

    def dropped(self) -> dict[str, int]:
        """Number of implausible driver values dropped."""
        return {"figure": 0 if self._sieve is None else self._sieve.dropped}

    def _has_devices(self) -> bool:
        if not self._devices and backends.initialised(self._jax):
            named = map(identity.hardware, self._jax.local_devices())
            self._devices = [(uuid, bus) for uuid, bus in named if uuid]
            if not self._devices:
                self._retry = float("inf")
        return bool(self._devices)
