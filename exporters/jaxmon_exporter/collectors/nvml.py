"""
NVIDIA GPUs, read through NVML without root, DCGM or a profiler.

What is read is the table `FIGURES`: a further figure is a further row. A figure that
a device does not support is learned once and not asked for again; a device that
is lost keeps its identity and shows ``up 0`` while the others go on; a driver
that fails is initialised again, at the pace of the poller's backoff.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

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
    Metric,
)
from jaxmon.exposition.families import Family, series
from jaxmon_exporter.collectors.nvml_codes import (
    DRIVER,
    LOST,
    NORMAL_ABSENCE,
    UNSUPPORTED,
    Handle,
    Nvml,
    failure,
)
from jaxmon_exporter.collectors.xids import Xids
from jaxmon_exporter.polling import CollectorUnavailable, partial_failures


log = logging.getLogger("jaxmon.exporter")

_ADVICE = {
    "library_not_found": "libnvidia-ml.so.1 is not here: no NVIDIA driver on this "
    "host, or none passed into this container",
    "driver_not_loaded": "the NVIDIA kernel driver is not loaded",
    "driver_mismatch": "the driver was upgraded under this process; restart the "
    "exporter",
    "init_failed": "NVML cannot start; a container that lost its devices must be "
    "created again",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """
    One number that NVML can tell about a device.

    Args:
        metric: its first label is ``uuid``.
        read: returns the value in the metric's unit, `None` to omit it.
        labels: values of the labels after ``uuid``.
    """

    metric: Metric
    read: Callable[[Nvml, Handle], float | None]
    labels: tuple[str, ...] = ()


def _memory_temperature(nvml: Nvml, handle: Handle) -> float | None:
    # Some drivers announce the wrong value type, and give nonsense for no sensor.
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_MEMORY_TEMP])
    if value.nvmlReturn:
        raise nvml.NVMLError(value.nvmlReturn)
    celsius: int = value.value.uiVal
    return celsius if 0 < celsius <= _HOTTEST else None


_HOTTEST = 200

FIGURES = (
    Figure(
        ACCELERATOR_UTILIZATION_RATIO,
        lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    ),
    Figure(
        ACCELERATOR_MEMORY_USED_BYTES,
        lambda nvml, gpu: _memory(nvml, gpu).used,
    ),
    Figure(
        ACCELERATOR_MEMORY_SIZE_BYTES,
        lambda nvml, gpu: _memory(nvml, gpu).total,
    ),
    Figure(
        ACCELERATOR_TEMPERATURE_CELSIUS,
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        ("gpu",),
    ),
    Figure(ACCELERATOR_TEMPERATURE_CELSIUS, _memory_temperature, ("memory",)),
    Figure(
        ACCELERATOR_POWER_WATTS,
        lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    ),
    Figure(
        ACCELERATOR_POWER_LIMIT_WATTS,
        lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    ),
    Figure(
        ACCELERATOR_ENERGY_JOULES,
        lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
    ),
)


def _memory(nvml: Nvml, handle: Handle) -> Any:
    # Version 2 keeps what the driver reserves out of "used".
    return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)


@dataclass(slots=True)
class _Device:
    """
    A device of the inventory; its identity outlives the device.
    """

    uuid: str
    info: str = ""
    handle: Handle = None
    unsupported: set[Figure] = field(default_factory=set)
    lost: bool = False


class _Lost(Exception):  # noqa: N818 - an outcome
    """
    A device no longer answers.
    """


class NvidiaGpus:
    """
    Reads every GPU that the driver shows to this process.
    """

    name = "nvml"
    deadline = 5.0

    def __init__(self, *, interval: float = 5.0) -> None:
        self.interval = interval
        self._nvml: Nvml = None
        self._devices: dict[str, _Device] = {}
        self._count = 0
        self._failures: Counter[str] = Counter()
        self._xids = Xids(self._failures)

    def collect(self) -> Iterable[Family]:
        """
        Read all devices; while the driver is well, that takes microseconds per
        figure, and a millisecond per device to see that no Xid error came.

        Raises:
            CollectorUnavailable: no pynvml, no driver, no device.
        """
        nvml = self._initialised()
        try:
            self._take_inventory(nvml)
            found = [self._read(nvml, device) for device in self._devices.values()]
        except nvml.NVMLError as error:
            self.close()
            raise self._unavailable(_reason(error), error) from error
        if not self._count:
            reason = "no_devices"
            raise CollectorUnavailable(reason, "the driver shows no GPU here")
        return [
            *(family for families in found for family in families),
            *self._xids.families(),
            partial_failures(self.name, self._failures),
        ]

    def close(self) -> None:
        """
        Shut NVML down; identities and counts of the devices stay.
        """
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            self._xids.close(nvml)
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError as error:
                log.debug("NVML did not shut down: %s", error)

    def _initialised(self) -> Nvml:
        if self._nvml is not None:
            return self._nvml
        try:
            import pynvml  # noqa: PLC0415 - 70 ms, and often not there
        except ImportError as error:
            message = (
                "the package nvidia-ml-py is missing; pip install 'jaxmon[nvidia]' "
                "to read NVIDIA GPUs, or pass --disable nvml"
            )
            reason = "not_installed"
            raise CollectorUnavailable(reason, message) from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise self._unavailable(_reason(error, "init_failed"), error) from error
        self._nvml = pynvml
        # Handles do not outlive a driver, and the new one may support more.
        for device in self._devices.values():
            device.lost = True
            device.unsupported.clear()
        return pynvml

    def _unavailable(self, reason: str, error: Exception) -> CollectorUnavailable:
        """
        Return the failure of the whole driver; known devices are down with it.
        """
        advice = _ADVICE.get(reason, "will be initialised again")
        down = [
            family
            for device in self._devices.values()
            for family in _identity(device, up=False)
        ]
        down += self._xids.families()
        return CollectorUnavailable(reason, f"{error}: {advice}", down)

    def _take_inventory(self, nvml: Nvml) -> None:
        """
        Find the devices, again whenever one of them is not in order.
        """
        self._count = max(self._count, nvml.nvmlDeviceGetCount())
        in_order = [device for device in self._devices.values() if not device.lost]
        if len(in_order) == self._count:
            return
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        for device in self._devices.values():
            device.handle = None
        for index in range(self._count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(nvml.nvmlDeviceGetUUID(handle))
                info = _info(nvml, handle, uuid, index, driver)
            except nvml.NVMLError as error:
                if error.value in DRIVER:
                    raise
            else:
                device = self._devices.setdefault(uuid, _Device(uuid))
                device.handle, device.info = handle, info
        # A device that was lost before we first saw it has no name to be down under.
        if (nameless := self._count - len(self._devices)) > 0:
            self._failures["device_unidentified"] += nameless

    def _read(self, nvml: Nvml, device: _Device) -> list[Family]:
        """
        Return the figures of one device; of a lost one, who it was.
        """
        # First: the Xid that explains a loss was queued before it.
        listening = self._xids.drain(nvml, device.uuid)
        found: list[Family] = []
        try:
            if device.handle is None:
                raise _Lost  # noqa: TRY301 - one place says what a loss means
            for figure in FIGURES:
                found += self._figure(nvml, device, figure)
        except _Lost as error:
            if not device.lost:
                why = error.__cause__ or "the driver does not find it"
                log.warning("GPU %s is lost: %s", device.uuid, why)
                self._failures["device_lost"] += 1
            device.lost = True
            return _identity(device, up=False)
        if device.lost:
            log.info("GPU %s is back", device.uuid)
        if device.lost or not listening:
            self._xids.listen(nvml, device.uuid, device.handle)
        device.lost = False
        return [*_identity(device, up=True), *found]

    def _figure(self, nvml: Nvml, device: _Device, figure: Figure) -> list[Family]:
        if figure in device.unsupported:
            return []
        try:
            value = figure.read(nvml, device.handle)
        except nvml.NVMLError as error:
            code = error.value
            if code in UNSUPPORTED:
                log.debug("%s: no %s: %s", device.uuid, figure.metric.name, error)
                device.unsupported.add(figure)
            elif code in LOST:
                raise _Lost from error
            elif code in DRIVER:
                raise
            elif code not in NORMAL_ABSENCE:
                self._failures[failure(code, "figure_failed")] += 1
            return []
        if value is None:
            return []
        name = series(figure.metric, device.uuid, *figure.labels)
        return [Family(figure.metric, [(name, value)])]


def _info(nvml: Nvml, handle: Handle, uuid: str, index: int, driver: str) -> str:
    return series(
        ACCELERATOR_INFO,
        uuid,
        index,
        "nvidia",
        _text(nvml.nvmlDeviceGetName(handle)),
        driver,
        pci_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
    )


def _identity(device: _Device, *, up: bool) -> list[Family]:
    return [
        Family(ACCELERATOR_INFO, [(device.info, 1.0)]),
        Family(
            ACCELERATOR_UP, [(series(ACCELERATOR_UP, device.uuid), 1.0 if up else 0.0)]
        ),
    ]


def pci_address(bus_id: str) -> str:
    """
    Return NVML's ``00000000:07:00.0`` as CUDA and sysfs spell it: ``0000:07:00.0``.
    """
    domain, colon, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}"


def _reason(error: Any, otherwise: str = "driver_error") -> str:
    return DRIVER.get(error.value, otherwise)


def _text(value: str | bytes) -> str:
    """
    Return a string of NVML; older pynvml gives bytes.
    """
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
