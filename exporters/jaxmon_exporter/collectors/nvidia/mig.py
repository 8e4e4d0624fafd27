"""
MIG devices: partitions of a GPU that programs see as separate GPUs.

They have separate metrics, so that sums do not count them twice. A JAX process that
uses one exports its uuid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jaxmon.catalog import (
    GPU_MIG_INFO,
    GPU_MIG_MEMORY_SIZE_BYTES,
    GPU_MIG_MEMORY_USED_BYTES,
    GPU_MIG_MODE,
    GPU_MIG_MULTIPROCESSORS,
    Metric,
)
from jaxmon.exposition.families import series
from jaxmon_exporter.collectors.nvidia.codes import Handle, Nvml
from jaxmon_exporter.collectors.nvidia.device import Device, Reading, text


# NVML divides a GPU into seven today; a driver that reports more is wrong.
_MOST_DEVICES = 64


def read(nvml: Nvml, device: Device, failures: Counter[str]) -> Iterator[Reading]:
    """
    Yield whether *device* is partitioned, and its MIG devices.

    Raises:
        DeviceLostError: it does not respond.
        NVMLError: the driver as a whole failed.
    """
    if not device.is_due(read):
        return
    try:
        mode, _ = nvml.nvmlDeviceGetMigMode(device.handle)
        device.on_mig_mode(bool(mode))
        yield GPU_MIG_MODE, (series(GPU_MIG_MODE, device.uuid), float(mode))
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(device.handle) if mode else 0
    except nvml.NVMLError as error:
        device.on_failure(read, error, failures)
        return
    for index in range(min(count, _MOST_DEVICES)):
        try:
            yield from _part(nvml, device, index)
        except nvml.NVMLError as error:
            # Not found is normal: a gap in the numbering, or an instance that was just
            # destroyed.
            device.on_failure((read, index), error, failures)


def _part(nvml: Nvml, device: Device, index: int) -> Iterator[Reading]:
    """Yield one MIG device; whole or not at all."""
    if not device.is_due((read, index)):
        return
    part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device.handle, index)
    uuid = text(nvml.nvmlDeviceGetUUID(part))
    memory = nvml.nvmlDeviceGetMemoryInfo(part)
    attributes = nvml.nvmlDeviceGetAttributes_v2(part)
    info = series(
        GPU_MIG_INFO,
        uuid,
        device.uuid,
        _profile(nvml, part),
        nvml.nvmlDeviceGetGpuInstanceId(part),
        nvml.nvmlDeviceGetComputeInstanceId(part),
    )
    yield GPU_MIG_INFO, (info, 1.0)
    yield _figure(GPU_MIG_MEMORY_USED_BYTES, uuid, memory.used)
    yield _figure(GPU_MIG_MEMORY_SIZE_BYTES, uuid, memory.total)
    yield _figure(GPU_MIG_MULTIPROCESSORS, uuid, attributes.multiprocessorCount)


def _profile(nvml: Nvml, part: Handle) -> str:
    """Return ``1g.5gb`` of ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``."""
    return text(nvml.nvmlDeviceGetName(part)).rpartition(" MIG ")[2]


def _figure(metric: Metric, uuid: str, value: float) -> Reading:
    return metric, (series(metric, uuid), value)
