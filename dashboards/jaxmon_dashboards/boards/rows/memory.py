"""Memory of devices, processes and hosts, and transfers to and from it."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import counter, gauge
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


@row(16, "Device memory", lines=(3, 2))
def debug() -> Iterator[Panel]:
    """Return what JAX's allocators hold, device by device."""
    by = (*q.BY_PROCESS, "device", "dtype")
    arrays = gauge(catalog.LIVE_ARRAYS, *q.PROCESS)
    info = ("job", "platform", "device_kind")
    yield timeseries(1601, "Device memory by kind")(
        gauge(catalog.DEVICE_MEMORY_BYTES, *q.PROCESS).max("kind"),
        text="The highest of all devices, by kind. limit minus in_use is free; peak is "
        "the maximum since startup. peak near limit: the next batch may not fit.",
        alerts=("JaxmonDeviceMemoryHigh", "JaxmonOutOfMemory"),
    )
    yield table(1606, "Live bytes by dtype")(
        Target(gauge(catalog.LIVE_ARRAY_BYTES, *q.PROCESS).max(*by).topk(q.FEW), "Now"),
        text="Live array bytes per device, by dtype, the 20 largest. float64 in a "
        "float32 program: something is being promoted.",
        sort="Now",
    )
    yield timeseries(1607, "Suspected leak")(
        *q.among_processes(gauge(catalog.LEAK_GROWTH_BYTES, *q.PROCESS)),
        text="Steady growth by source line within the agent's window, on the device "
        "with most and on the median one. If above 0, the agent's event names the "
        "lines.",
        alerts=("JaxmonMemoryLeak",),
    )
    yield timeseries(1603, "Live arrays by device")(
        *q.among_processes(arrays),
        text="Live arrays of the device with most and of the median one. A steady "
        "slope is a leak: stored results, closures or exceptions.",
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
    moved, moved_bytes, blocked = (
        counter(metric, *q.PROCESS).rate().max("direction")
        for metric in (
            catalog.HOST_TRANSFERS,
            catalog.HOST_TRANSFER_BYTES,
            catalog.HOST_TRANSFER_SECONDS,
        )
    )
    waits, waited = (
        Target(counter(metric, *q.PROCESS).rate().max(), "waits")
        for metric in (catalog.HOST_SYNCS, catalog.HOST_SYNC_SECONDS)
    )
    yield timeseries(2101, "Transfers")(
        *(moved, waits),
        text="Transfers and syncs per second, of the process with most. As many as "
        "steps: a line of the training loop reads a value each time, and the device "
        "idles meanwhile; `jaxmon explain` names the line.",
    )
    yield timeseries(2102, "Bytes transferred")(
        moved_bytes,
        text="Bytes transferred per second, of the process with most. NumPy arguments "
        "of cached calls are not included.",
    )
    yield timeseries(2103, "Time blocked on transfers")(
        *(blocked, waited),
        text="Fraction of one thread's time blocked on transfers and syncs, in the "
        "worst process, including waiting for results; can exceed 1 with several "
        "threads.",
        unbounded=True,
    )
