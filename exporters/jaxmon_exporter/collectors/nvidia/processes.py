"""
GPU memory by process: only if asked for, and only the largest.

A process number means nothing after its process, and each makes a series. They are
numbers of the driver's choice: in a container they may be those of the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jaxmon.catalog import GPU_PROCESS_MEMORY_BYTES
from jaxmon.exposition.families import series
from jaxmon_exporter.collectors.nvidia.codes import Nvml
from jaxmon_exporter.collectors.nvidia.device import Device, Reading


_OTHER = "other"


def read(
    nvml: Nvml, device: Device, failures: Counter[str], most: int
) -> Iterator[Reading]:
    """
    Yield the *most* processes with most memory on *device*, the others as one.

    Raises:
        Lost: it does not answer.
        NVMLError: the driver as a whole failed.
    """
    if not device.awake(read):
        return
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device.handle)
    except nvml.NVMLError as error:
        device.judge(read, error, failures)
        return
    used: Counter[str] = Counter()
    for process in running:
        # The driver tells a container of processes but not always of their memory.
        if process.usedGpuMemory is not None:
            used[str(process.pid)] += process.usedGpuMemory
    kept = used.most_common(most)
    if rest := used.total() - sum(size for _, size in kept):
        kept.append((_OTHER, rest))
    for pid, size in kept:
        name = series(GPU_PROCESS_MEMORY_BYTES, device.uuid, pid)
        yield GPU_PROCESS_MEMORY_BYTES, (name, size)
