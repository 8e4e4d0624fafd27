"""Memory of devices, processes and hosts."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, table, timeseries
from jaxmon.artifacts.dashboards.model import Row, Target
from jaxmon.artifacts.promql import counter, eq, gauge
from jaxmon.artifacts.slo import Slos


def oncall(slos: Slos) -> Row:
    """Return how close memory is to its limits, and whether it grows."""
    by = ("job", "instance", "worker", "device")
    named = f"{q.NAMED_PROCESS} {{{{device}}}}"
    used = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "in_use"), *q.DEVICE).sum(*by)
    limit = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "limit"), *q.DEVICE).sum(*by)
    held = gauge(catalog.LIVE_ARRAY_BYTES, *q.DEVICE)
    arrays = gauge(catalog.LIVE_ARRAYS, *q.DEVICE)
    resident = gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, *q.PROCESS)
    host = promql.ratio(
        hardware.host(catalog.HOST_MEMORY_AVAILABLE_BYTES).sum("job", "instance"),
        hardware.host(catalog.HOST_MEMORY_SIZE_BYTES).sum("job", "instance"),
    )
    return row(
        7,
        "Memory",
        line(
            timeseries(
                601,
                "Device memory in use",
                Target(promql.ratio(used, limit).topk(20), named),
                text=(
                    "Fraction of JAX's memory limit in use, on the 20 fullest "
                    "devices. At the line the next allocation may fail. Not available "
                    "on CPUs."
                ),
                maximum=1,
                thresholds=q.above(slos.thresholds.device_memory),
                alerts=("JaxmonDeviceMemoryHigh", "JaxmonOutOfMemory"),
            ),
            timeseries(
                602,
                "Bytes of live arrays",
                Target(held.sum(*by).topk(20), named),
                text=(
                    "Live array bytes on the 20 devices with the most. If it only "
                    "ever rises, something is keeping references."
                ),
                alerts=("JaxmonMemoryLeak", "JaxmonHostMemoryGrowth"),
            ),
            timeseries(
                603,
                "Live arrays",
                Target(arrays.sum(*by).topk(20), named),
                text=(
                    "Number of live arrays on the 20 devices with the most. Steady in "
                    "a program without leaks."
                ),
            ),
        ),
        line(
            timeseries(
                604,
                "Resident memory by process",
                Target(resident.sum(*q.BY_PROCESS).topk(20), q.NAMED_PROCESS),
                text=(
                    "Host memory of the 20 largest processes. Unbounded growth: a "
                    "leak, often of host arrays or compiled programs."
                ),
                alerts=("JaxmonHostMemoryGrowth",),
            ),
            timeseries(
                605,
                "Host memory available",
                Target(host.bottomk(20), "{{job}} {{instance}}"),
                text=(
                    "Available host memory as a fraction of total, on the 20 hosts "
                    "with the least. Near 0 the OOM killer kills the largest process."
                ),
                maximum=1,
            ),
        ),
    )


def debug() -> Row:
    """Return what JAX's allocators hold, device by device."""
    by = (*q.BY_PROCESS, "device")
    named = f"{q.NAMED_PROCESS} {{{{device}}}}"
    memory = gauge(catalog.DEVICE_MEMORY_BYTES, *q.DEVICE).sum(*by, "kind")
    allocations = counter(catalog.DEVICE_ALLOCATIONS, *q.DEVICE).rate().sum(*by)
    arrays = gauge(catalog.LIVE_ARRAYS, *q.DEVICE).sum(*by)
    size = promql.ratio(gauge(catalog.LIVE_ARRAY_BYTES, *q.DEVICE).sum(*by), arrays)
    dtypes = gauge(catalog.LIVE_ARRAY_BYTES, *q.DEVICE).sum(*by, "dtype")
    leak = gauge(catalog.LEAK_GROWTH_BYTES, *q.DEVICE).max(*by)
    info = ("job", "instance", "platform", "device_kind")
    devices = gauge(catalog.DEVICE_INFO, *q.DEVICE).count(*info)
    return row(
        16,
        "Device memory",
        line(
            timeseries(
                1601,
                "Device memory by kind",
                Target(memory, f"{named} {{{{kind}}}}"),
                text=(
                    "limit minus in_use is free; peak is the maximum since startup. "
                    "peak near limit: the next batch may not fit."
                ),
                alerts=("JaxmonDeviceMemoryHigh", "JaxmonOutOfMemory"),
            ),
            timeseries(
                1602,
                "Allocations",
                Target(allocations, named),
                text="Allocations per second on each device. Steady in a warm loop.",
            ),
        ),
        line(
            timeseries(
                1606,
                "Live bytes by dtype",
                Target(dtypes > 0, f"{named} {{{{dtype}}}}"),
                text=(
                    "Live array bytes per device, by dtype. float64 in a float32 "
                    "program: something is being promoted."
                ),
            ),
            timeseries(
                1607,
                "Suspected leak",
                Target(leak, named),
                text=(
                    "Steady growth by source line within the agent's window. If above "
                    "0, the agent's event names the lines."
                ),
                alerts=("JaxmonMemoryLeak",),
            ),
        ),
        line(
            timeseries(
                1603,
                "Live arrays by device",
                Target(arrays, named),
                text=(
                    "Live arrays. A steady slope is a leak: stored results, closures "
                    "or exceptions."
                ),
            ),
            timeseries(
                1604,
                "Mean size of a live array",
                Target(size.of_unit("bytes"), named),
                text=(
                    "Falls as small arrays accumulate: scalars never read back, "
                    "metrics kept on the device."
                ),
            ),
            table(
                1605,
                "Devices",
                Target(devices, "Devices"),
                text=(
                    "The devices JAX uses. If it shows cpu where a GPU or TPU is "
                    "expected, the plugin did not load."
                ),
                labels=info,
            ),
        ),
    )
