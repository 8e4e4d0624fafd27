"""Memory of devices, processes and hosts."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import counter, eq, gauge
from jaxmon.artifacts.slo import Slos


def oncall(slos: Slos) -> Row:
    """Return how near the limits memory is, and whether it grows."""
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
    return Row(
        7,
        "Memory",
        (
            Panel(
                id=601,
                title="Device memory in use",
                kind="timeseries",
                text="Share of what JAX may allocate, on the twenty fullest devices. "
                "At the line the next allocation is in danger. CPUs have no such "
                "figure.",
                targets=(Target(promql.ratio(used, limit).topk(20), named),),
                width=8,
                maximum=1,
                thresholds=q.above(slos.thresholds.device_memory),
                alerts=("JaxmonDeviceMemoryHigh", "JaxmonOutOfMemory"),
            ),
            Panel(
                id=602,
                title="Bytes of live arrays",
                kind="timeseries",
                text="What programs hold on the twenty devices with most. It rises and "
                "never falls: something keeps references.",
                targets=(Target(held.sum(*by).topk(20), named),),
                width=8,
                alerts=("JaxmonMemoryLeak", "JaxmonHostMemoryGrowth"),
            ),
            Panel(
                id=603,
                title="Live arrays",
                kind="timeseries",
                text="How many arrays programs hold on the twenty devices with most. "
                "Steady in a program without leaks.",
                targets=(Target(arrays.sum(*by).topk(20), named),),
                width=8,
            ),
            Panel(
                id=604,
                title="Resident memory by process",
                kind="timeseries",
                text="Host memory of the twenty largest processes. Growth without end: "
                "a leak, often of arrays kept on the host or of compiled programs.",
                targets=(
                    Target(resident.sum(*q.BY_PROCESS).topk(20), q.NAMED_PROCESS),
                ),
                alerts=("JaxmonHostMemoryGrowth",),
            ),
            Panel(
                id=605,
                title="Host memory available",
                kind="timeseries",
                text="Share of a host's memory that programs can still get, of the "
                "twenty with least. Near 0 the kernel kills the largest process.",
                targets=(Target(host.bottomk(20), "{{job}} {{instance}}"),),
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
    return Row(
        16,
        "Device memory",
        (
            Panel(
                id=1601,
                title="Device memory by kind",
                kind="timeseries",
                text="in_use against limit is what is left; peak is the most there was "
                "since the start. peak near limit: the next batch may not fit.",
                targets=(Target(memory, f"{named} {{{{kind}}}}"),),
                alerts=("JaxmonDeviceMemoryHigh", "JaxmonOutOfMemory"),
            ),
            Panel(
                id=1602,
                title="Allocations",
                kind="timeseries",
                text="Allocations per second on each device. Steady in a warm loop.",
                targets=(Target(allocations, named),),
            ),
            Panel(
                id=1606,
                title="Live bytes by dtype",
                kind="timeseries",
                text="What the program holds on each device, by dtype. float64 in a "
                "float32 program: something is promoted.",
                targets=(Target(dtypes > 0, f"{named} {{{{dtype}}}}"),),
            ),
            Panel(
                id=1607,
                title="Suspected leak",
                kind="timeseries",
                text="Bytes by which source lines only grew within the agent's window. "
                "Above 0 the agent's event names the lines.",
                targets=(Target(leak, named),),
                alerts=("JaxmonMemoryLeak",),
            ),
            Panel(
                id=1603,
                title="Live arrays by device",
                kind="timeseries",
                text="Arrays that the program holds. A slope is a leak: lists of "
                "results, closures, exceptions kept.",
                targets=(Target(arrays, named),),
                width=8,
            ),
            Panel(
                id=1604,
                title="Mean size of a live array",
                kind="timeseries",
                text="Falls while many small arrays pile up: scalars that were never "
                "fetched, metrics kept on the device.",
                targets=(Target(size.of_unit("bytes"), named),),
                width=8,
            ),
            Panel(
                id=1605,
                title="Devices",
                kind="table",
                text="What JAX runs on. cpu where a GPU or TPU is expected: the plugin "
                "did not load.",
                targets=(Target(devices, "Devices"),),
                width=8,
                labels=info,
            ),
        ),
    )
