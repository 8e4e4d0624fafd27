"""
GPU activity on Hopper and later through NVML's GPM, which needs neither DCGM nor root
and does not conflict with profilers.

It compares two samples of hardware counters, so this collector keeps the sample of the
previous poll: a value is the mean from one poll to the next, however often it is
scraped.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, by_label
from jaxmon_exporter import polling
from jaxmon_exporter.collectors.nvidia import device as gpus
from jaxmon_exporter.collectors.nvidia.calls import FIELDS, NvmlSession, unavailable
from jaxmon_exporter.collectors.nvidia.device import DRIVER, LOST, Handle, Nvml, text


log = logging.getLogger("jaxmon.exporter")

# By NVML's metric ids; values are percentages.
_RATIOS = {
    1: catalog.GPU_GRAPHICS_ACTIVE_RATIO,
    2: catalog.GPU_SM_ACTIVE_RATIO,
    3: catalog.GPU_SM_OCCUPANCY_RATIO,
    4: catalog.GPU_INTEGER_ACTIVE_RATIO,
    5: catalog.GPU_TENSOR_ACTIVE_RATIO,
    10: catalog.GPU_DRAM_ACTIVE_RATIO,
    11: catalog.GPU_FP64_ACTIVE_RATIO,
    12: catalog.GPU_FP32_ACTIVE_RATIO,
    13: catalog.GPU_FP16_ACTIVE_RATIO,
}
# In MiB per second.
_RATES = {
    20: catalog.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND,
    21: catalog.GPU_PCIE_RECEIVE_BYTES_PER_SECOND,
    60: catalog.GPU_NVLINK_RECEIVE_BYTES_PER_SECOND,
    61: catalog.GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND,
}
# The queries of collector nvml for the same bytes.
_COUNTING = [row for row in FIELDS if row.figure.metric in polling.COUNTERS.values()]
_MEBIBYTE = 1 << 20
_PERCENT = 100

# UUID of a GPU, and the number of an instance of it.
_Key: TypeAlias = tuple[str, int | None]
_UNSUPPORTED = "unsupported"
_SERIOUS = DRIVER.keys() | LOST.keys()
_ADVICE = {
    _UNSUPPORTED: (
        "no GPU here supports activity metrics (Hopper or later required); for older "
        "GPUs use --dcgm with a dcgm-exporter"
    ),
    "no_permission": "the driver denies this process access to activity metrics",
}


@dataclass(slots=True, eq=False, repr=False)
class _Unit:
    """A sampled unit: a GPU, or a MIG instance of one; if *off*, why it is not."""

    uuids: tuple[str, ...]
    handle: Handle
    instance: int | None = None
    divided: bool = False
    sample: Any = None
    off: str = ""
    metrics: dict[int, Metric] = field(default_factory=dict)


class Gpm(polling.Collector):
    """Samples every GPU that supports it, at most every 0.1 s."""

    name = "gpm"
    deadline = 5.0

    def __init__(self, *, interval: float = 5.0, all_rates: bool = False) -> None:
        self.interval = interval
        self._all_rates = all_rates
        self._session = NvmlSession(self.name)
        self._units: dict[_Key, _Unit] = {}
        self._lost: set[_Key] = set()
        self._failures: Counter[str] = Counter()

    def collect(self) -> Iterable[Family]:
        """Sample all units and compare with the samples before."""
        nvml = self._session.open()
        try:
            self._take_inventory(nvml)
            found = [
                family
                for key, unit in self._units.items()
                for family in self._read(nvml, key, unit)
            ]
        except nvml.NVMLError as error:
            self.close()
            raise unavailable(error) from error
        failures = polling.partial_failures(self.name, self._failures)
        reasons = sorted(unit.off for unit in self._units.values())
        if reasons and reasons[0]:  # none is on
            message = _ADVICE[reasons[0]]
            raise polling.CollectorUnavailable(reasons[0], message, [failures])
        return [*found, failures]

    def close(self) -> None:
        """Free the samples and shut NVML down. A new driver may support more."""
        if (nvml := self._session.nvml) is not None:
            for unit in self._units.values():
                _free(nvml, unit)
        self._units.clear()
        self._session.close()

    def _take_inventory(self, nvml: Nvml) -> None:
        """Find the units to sample, and forget those that are gone."""
        count = nvml.nvmlDeviceGetCount()
        if not count:
            reason, message = "no_devices", "the driver reports no GPUs"
            raise polling.CollectorUnavailable(reason, message)
        seen: set[_Key] = set()
        for index in range(count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = text(nvml.nvmlDeviceGetUUID(handle))
                divided, instances = _mig_instances(nvml, handle)
            except nvml.NVMLError as error:
                # The collector nvml reports lost devices.
                if error.value in DRIVER:
                    raise
                continue
            for instance, uuids in ((None, (uuid,)), *instances.items()):
                key = (uuid, instance)
                seen.add(key)
                new = _Unit(uuids, handle, instance, divided)
                unit = self._units.setdefault(key, new)
                unit.handle = handle
                # Repartitioned, it is a new unit: it may support more, and nothing of
                # it compares with what had its number before.
                if (unit.uuids, unit.divided) != (uuids, divided):
                    _free(nvml, unit)
                    self._units[key] = new
        for key in self._units.keys() - seen:
            _free(nvml, self._units.pop(key))
            self._lost.discard(key)

    def _read(self, nvml: Nvml, key: _Key, unit: _Unit) -> list[Family]:
        if unit.off:
            return []
        try:
            if not unit.metrics:
                if not nvml.nvmlGpmQueryDeviceSupport(unit.handle).isSupportedDevice:
                    unit.off = _UNSUPPORTED
                    return []
                unit.metrics = self._wanted(nvml, unit)
            before = unit.sample
            unit.sample = _sampled(nvml, unit)
            try:
                found = _compared(nvml, unit, before) if before is not None else []
            finally:
                _free_sample(nvml, before)
        except nvml.NVMLError as error:
            self._note(nvml, key, unit, error)
            return []
        self._lost.discard(key)
        return found

    def _wanted(self, nvml: Nvml, unit: _Unit) -> dict[int, Metric]:
        """Return the metrics to query: rates only of whole GPUs without a counter."""
        if unit.instance is not None:
            return _RATIOS
        counted = set()
        if not self._all_rates:
            asked = [(field.number, field.scope) for field in _COUNTING]
            with suppress(nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
                answers = nvml.nvmlDeviceGetFieldValues(unit.handle, asked)
                counted = {
                    field.figure.metric.name
                    for field, answer in zip(_COUNTING, answers, strict=True)
                    if answer.nvmlReturn == 0 and field.value(answer) is not None
                }
        rates = {
            number: metric
            for number, metric in _RATES.items()
            if polling.COUNTERS[metric.name].name not in counted
        }
        return {**_RATIOS, **rates}

    def _note(self, nvml: Nvml, key: _Key, unit: _Unit, error: Any) -> None:
        """Handle a failed call. Raises `NVMLError`: the driver as a whole failed."""
        code = error.value
        if code in DRIVER:
            raise error
        # What comes next must not be compared with what was before the failure.
        _free(nvml, unit)
        if code in gpus.UNSUPPORTED:
            unit.off = _UNSUPPORTED
        elif code == gpus.NO_PERMISSION:
            unit.off = "no_permission"
            self._failures["device_no_permission"] += 1
            log.warning("GPU %s: no permission to read activity metrics", key[0])
        elif code in LOST:
            if key not in self._lost:
                self._failures["device_lost"] += 1
            self._lost.add(key)
        elif code not in gpus.NORMAL_ABSENCE:
            self._failures["sample_failed"] += 1


def _mig_instances(
    nvml: Nvml, handle: Handle
) -> tuple[bool, dict[int, tuple[str, ...]]]:
    """Return whether a GPU is split, and its instances with their devices' UUIDs."""
    found: defaultdict[int, tuple[str, ...]] = defaultdict(tuple)
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
        slots = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except nvml.NVMLError as error:
        if error.value in _SERIOUS:
            raise
        return False, {}
    for slot in range(slots):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
            instance = nvml.nvmlDeviceGetGpuInstanceId(device)
            found[instance] += (text(nvml.nvmlDeviceGetUUID(device)),)
        except nvml.NVMLError as error:
            if error.value in _SERIOUS:
                raise
    return bool(current), found


def _sampled(nvml: Nvml, unit: _Unit) -> Any:
    sample = nvml.nvmlGpmSampleAlloc()
    try:
        if unit.instance is None:
            nvml.nvmlGpmSampleGet(unit.handle, sample)
        else:
            nvml.nvmlGpmMigSampleGet(unit.handle, unit.instance, sample)
    except nvml.NVMLError:
        _free_sample(nvml, sample)
        raise
    return sample


def _compared(nvml: Nvml, unit: _Unit, before: Any) -> list[Family]:
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(unit.metrics)
    request.sample1, request.sample2 = before, unit.sample
    for place, number in enumerate(unit.metrics):
        request.metrics[place].metricId = number
    nvml.nvmlGpmMetricsGet(request)
    found = []
    for place, (number, metric) in enumerate(unit.metrics.items()):
        answer = request.metrics[place]
        if answer.nvmlReturn == 0 and math.isfinite(answer.value):
            is_rate = number in _RATES
            value = answer.value * _MEBIBYTE if is_rate else answer.value / _PERCENT
            found.append(by_label(metric, dict.fromkeys(unit.uuids, value)))
    return found


def _free(nvml: Nvml, unit: _Unit) -> None:
    sample, unit.sample = unit.sample, None
    _free_sample(nvml, sample)


def _free_sample(nvml: Nvml, sample: Any) -> None:
    if sample is not None:
        with suppress(nvml.NVMLError):
            nvml.nvmlGpmSampleFree(sample)
