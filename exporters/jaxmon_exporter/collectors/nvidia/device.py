"""A GPU in the inventory, and how its failed calls are handled."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Sample, series


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


log = logging.getLogger("jaxmon.exporter")

Reading: TypeAlias = tuple[Metric, Sample]

# Polls until a query without permission is retried: about five minutes.
_PATIENCE = 60


class DeviceLostError(Exception):
    """A device no longer responds."""


@dataclass(slots=True, eq=False, repr=False)
class Figure:
    """A value that NVML reports; queries that can provide it share the object."""

    metric: Metric
    labels: tuple[str, ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class NvmlDevice:
    """
    A device of the inventory; its identity outlives the device.

    Slow-changing values are read in a *thorough* poll, for which devices take turns by
    their *place*, and kept in *steady*. Queries are *paused* until some poll, forever
    if unsupported; *no_responses* counts those of this poll without even an error. Each
    value has one of the *sources* for as long as the device exists: two counters of the
    same thing may disagree. *failures* are counted, by reason.
    """

    uuid: str
    place: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    identity: list[Reading] = field(default_factory=list)
    handle: Handle = None
    lost: bool = False
    polls: int = 0
    thorough: bool = True
    steady: list[Reading] = field(default_factory=list)
    no_responses: int = 0
    paused: dict[object, float] = field(default_factory=dict)
    sources: dict[Figure, object] = field(default_factory=dict)
    _divided: bool | None = None
    _thorough_at: int = 0
    _names: dict[Figure, str] = field(default_factory=dict)

    def begin(self, every: int) -> None:
        """Begin a poll; one in *every* reads slow-changing values; the first does."""
        self.polls += 1
        self.no_responses = 0
        self.thorough = self.polls >= self._thorough_at
        if self.thorough:
            self.steady = []
            early = 0 if self._thorough_at else self.place % every
            self._thorough_at = self.polls + every - early

    def is_due(self, query: object) -> bool:
        """Return whether *query* is due at this poll."""
        return self.paused.get(query, 0.0) <= self.polls

    def forget(self) -> None:
        """Query everything again: a reset device or a new driver may support more."""
        self.paused.clear()
        self.sources.clear()
        self._thorough_at = 0

    def on_mig_mode(self, divided: bool) -> None:  # noqa: FBT001 - all there is
        """Query everything again if MIG mode was switched."""
        before, self._divided = self._divided, divided
        if before is not None and before is not divided:
            self.forget()

    def reading(self, figure: Figure, value: float, source: object) -> Reading | None:
        """Return *value* under its name, `None` if another source provides it."""
        if self.sources.setdefault(figure, source) is not source:
            return None
        if (name := self._names.get(figure)) is None:
            name = series(figure.metric, self.uuid, *figure.labels)
            self._names[figure] = name
        return figure.metric, (name, value)

    def take(
        self,
        query: object,
        results: Iterable[tuple[Figure, float | None]],
        found: list[Reading],
    ) -> None:
        """Add the result of *query* to *found*, unless it has other sources."""
        superseded = True
        for figure, value in results:
            reading = None if value is None else self.reading(figure, value, query)
            superseded &= value is not None and reading is None
            if reading is not None:
                found.append(reading)
        if superseded:
            self.paused[query] = math.inf

    def on_failure(
        self, query: object, error: Any, *, unsupported: bool = False
    ) -> None:
        """Handle a failed *query*; `DeviceLostError`, `NVMLError`."""
        code = error.value
        if code in UNSUPPORTED or unsupported:
            log.debug("%s: disabling %s: %s", self.uuid, query, error)
            self.paused[query] = math.inf
        elif code in LOST:
            raise DeviceLostError from error
        elif code in DRIVER:
            raise error
        elif code == NO_PERMISSION:
            self.failures["no_permission"] += 1
            self.paused[query] = self.polls + _PATIENCE
        else:
            self.no_responses += 1
            if code not in NORMAL_ABSENCE:
                self.failures["figure_failed"] += 1

    def up(self) -> Reading:
        """Return whether the device responds."""
        return _figure(catalog.ACCELERATOR_UP, self.uuid, 0.0 if self.lost else 1.0)


def identify(
    nvml: Nvml, handle: Handle, uuid: str, index: int, sysfs: Path
) -> list[Reading]:
    """Return a device's identity, which stays while its driver is loaded."""
    address = pci_address(text(nvml.nvmlDeviceGetPciInfo(handle).busId))
    model = text(nvml.nvmlDeviceGetName(handle))
    driver = text(nvml.nvmlSystemGetDriverVersion())
    vbios = _or_nothing(nvml, lambda: text(nvml.nvmlDeviceGetVbiosVersion(handle)))
    cuda = _or_nothing(nvml, lambda: _cuda(nvml.nvmlSystemGetCudaDriverVersion()))
    labels = (uuid, index, "nvidia", model, driver, address)
    found = [
        _figure(catalog.ACCELERATOR_INFO, *labels, 1.0),
        _figure(catalog.GPU_INFO, uuid, vbios, cuda, 1.0),
    ]
    if (node := _numa_node(sysfs, address)) is not None:
        found.append(_figure(catalog.ACCELERATOR_NUMA_NODE, uuid, node))
    return found


def pci_address(bus_id: str) -> str:
    """Return NVML's ``00000000:07:00.0`` as sysfs spells it: ``0000:07:00.0``."""
    domain, colon, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}"


def text(value: str | bytes) -> str:
    """Return a string from NVML; older pynvml returns bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _or_nothing(nvml: Nvml, read: Callable[[], str]) -> str:
    try:
        return read()
    except nvml.NVMLError as error:
        if error.value in DRIVER:
            raise
        return ""


def _numa_node(sysfs: Path, address: str) -> int | None:
    try:
        node = int((sysfs / "bus/pci/devices" / address / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


# NVML divides a GPU into seven today; a driver that reports more is wrong.
_MOST_DEVICES = 64


def read(nvml: Nvml, device: NvmlDevice) -> Iterator[Reading]:
    """Yield whether *device* is partitioned, and its parts; raises as `on_failure`."""
    if not device.is_due(read):
        return
    try:
        mode, _ = nvml.nvmlDeviceGetMigMode(device.handle)
        device.on_mig_mode(bool(mode))
        yield _figure(catalog.GPU_MIG_MODE, device.uuid, float(mode))
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(device.handle) if mode else 0
    except nvml.NVMLError as error:
        device.on_failure(read, error)
        return
    for index in range(min(count, _MOST_DEVICES)):
        try:
            yield from _part(nvml, device, index)
        except nvml.NVMLError as error:
            # Not found is normal: a gap in the numbering, or an instance that was just
            # destroyed.
            device.on_failure((read, index), error)


def _part(nvml: Nvml, device: NvmlDevice, index: int) -> Iterator[Reading]:
    """Yield one MIG device; whole or not at all."""
    if not device.is_due((read, index)):
        return
    part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device.handle, index)
    uuid = text(nvml.nvmlDeviceGetUUID(part))
    memory = nvml.nvmlDeviceGetMemoryInfo(part)
    attributes = nvml.nvmlDeviceGetAttributes_v2(part)
    # ``1g.5gb`` of ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``.
    profile = text(nvml.nvmlDeviceGetName(part)).rpartition(" MIG ")[2]
    instance = nvml.nvmlDeviceGetGpuInstanceId(part)
    compute = nvml.nvmlDeviceGetComputeInstanceId(part)
    labels = (uuid, device.uuid, profile, instance, compute)
    yield _figure(catalog.GPU_MIG_INFO, *labels, 1.0)
    yield _figure(catalog.GPU_MIG_MEMORY_USED_BYTES, uuid, memory.used)
    yield _figure(catalog.GPU_MIG_MEMORY_SIZE_BYTES, uuid, memory.total)
    yield _figure(catalog.GPU_MIG_MULTIPROCESSORS, uuid, attributes.multiprocessorCount)


def _figure(metric: Metric, *row: Any) -> Reading:
    *labels, value = row
    return metric, (series(metric, *labels), value)
