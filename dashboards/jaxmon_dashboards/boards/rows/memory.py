"""Memory of devices, processes and hosts, and transfers to and from it."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import counter, eq, gauge
from jaxmon_alerts.overviews import hosts
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, table, timeseries


@row(7, "Memory", lines=(2,))
def oncall(slos: Slos) -> Iterator[Panel]:
    """Return how close memory is to its limits, and whether it grows."""
    yield timeseries(601, "Device memory in use")(
        hosts.DEVICE_MEMORY(q.JOB).worst(q.FEW),
        text="Fraction of JAX's memory limit in use on the fullest device of each "
        "host, of the 20 fullest hosts. At the line the next allocation may fail. Not "
        "available on CPUs.",
        thresholds=q.above(slos.limits.device_memory),
        alerts=("JaxmonDeviceMemoryHigh", "JaxmonOutOfMemory"),
    )
    yield timeseries(604, "Resident memory of the largest process")(
        hosts.RESIDENT(q.JOB).worst(q.FEW),
        text="Host memory of the largest process of the 20 hosts with the most. "
        "Unbounded growth: a leak, often of host arrays or compiled programs.",
        alerts=("JaxmonHostMemoryGrowth",),
    )


@row(16, "Device memory", lines=(3, 3))
def debug() -> Iterator[Panel]:
    """Return what JAX's allocators hold, device by device."""
    by = (*q.BY_PROCESS, "device")
    used = gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", "in_use"), *q.PROCESS)
    memory = gauge(catalog.DEVICE_MEMORY_BYTES, *q.PROCESS).sum(*by, "kind")
    arrays = gauge(catalog.LIVE_ARRAYS, *q.PROCESS).sum(*by)
    held = gauge(catalog.LIVE_ARRAY_BYTES, *q.PROCESS).sum(*by, "dtype")
    info = ("job", "platform", "device_kind")
    yield timeseries(1601, "Device memory by kind")(
        memory.and_(used.over_range("max").sum(*by).topk(10), *by),
        text="Of the ten fullest devices. limit minus in_use is free; peak is the "
        "maximum since startup. peak near limit: the next batch may not fit.",
        alerts=("JaxmonDeviceMemoryHigh", "JaxmonOutOfMemory"),
    )
    yield timeseries(1602, "Allocations")(
        counter(catalog.DEVICE_ALLOCATIONS, *q.PROCESS).rate().sum(*by).worst(q.FEW),
        text="Allocations per second, of the 20 devices with most. Steady in a warm "
        "loop.",
    )
    yield timeseries(1606, "Live bytes by dtype")(
        (held > 0).worst(q.FEW),
        text="Live array bytes per device, by dtype, the 20 largest. float64 in a "
        "float32 program: something is being promoted.",
    )
    yield timeseries(1607, "Suspected leak")(
        gauge(catalog.LEAK_GROWTH_BYTES, *q.PROCESS).max(*by).worst(q.FEW),
        text="Steady growth by source line within the agent's window, on the 20 "
        "devices with the most. If above 0, the agent's event names the lines.",
        alerts=("JaxmonMemoryLeak",),
    )
    yield timeseries(1603, "Live arrays by device")(
        arrays.worst(q.FEW),
        text="Live arrays of the 20 devices with the most. A steady slope is a leak: "
        "stored results, closures or exceptions.",
    )
    yield table(1605, "Devices")(
        Target(gauge(catalog.DEVICE_INFO, *q.PROCESS).count(*info), "Devices"),
        text="The devices JAX uses. If it shows cpu where a GPU or TPU is expected, "
        "the plugin did not load.",
        labels=info,
    )


@row(21, "Transfers and syncs", lines=(3,), collapsed=True)
def transfers() -> Iterator[Panel]:
    """Return transfer and sync panels."""
    by = (*q.BY_PROCESS, "direction")
    waits = counter(catalog.HOST_SYNCS, *q.PROCESS).rate().sum(*q.BY_PROCESS)
    waited = counter(catalog.HOST_SYNC_SECONDS, *q.PROCESS).rate().sum(*q.BY_PROCESS)
    yield timeseries(2101, "Transfers")(
        counter(catalog.HOST_TRANSFERS, *q.PROCESS).rate().sum(*by).worst(q.FEW),
        Target(waits.worst(q.FEW), "waits"),
        text="Transfers and syncs per second, of the 20 processes with most. As many "
        "as steps: a line of the training loop reads a value each time, and the device "
        "idles meanwhile; `jaxmon explain` names the line.",
    )
    yield timeseries(2102, "Bytes transferred")(
        counter(catalog.HOST_TRANSFER_BYTES, *q.PROCESS).rate().sum(*by).worst(q.FEW),
        text="Bytes transferred per second, of the 20 processes with most. NumPy "
        "arguments of cached calls are not included.",
    )
    yield timeseries(2103, "Time blocked on transfers")(
        counter(catalog.HOST_TRANSFER_SECONDS, *q.PROCESS).rate().sum(*by).worst(q.FEW),
        Target(waited.worst(q.FEW), "waits"),
        text="Fraction of one thread's time blocked on transfers and syncs, of the 20 "
        "worst, including waiting for results; can exceed 1 with several threads.",
        unbounded=True,
    )
