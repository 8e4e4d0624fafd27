"""Processes and their memory, transfers, and hosts."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import counter, eq, gauge
from jaxmon_alerts.overviews import hosts
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, table, timeseries


@row(19, "Processes", lines=(4, 3))
def debug() -> Iterator[Panel]:
    """Return CPU, memory, descriptors and collections, then the container."""
    collections = counter(catalog.PYTHON_GC_COLLECTIONS, *q.PROCESS).rate()
    descriptors = gauge(catalog.PROCESS_OPEN_FDS, *q.PROCESS) / gauge(
        catalog.PROCESS_MAX_FDS, *q.PROCESS
    )
    yield timeseries(1901, "CPU by process")(
        *q.among_processes(counter(catalog.PROCESS_CPU_SECONDS, *q.PROCESS).rate()),
        text="Of the busiest process and of the median one, sidecars included; 100 % "
        "is one core. A training process at exactly one core is often limited by "
        "Python: data loading or dispatch. Fleet names the busiest.",
        unbounded=True,
    )
    yield timeseries(1902, "Resident memory")(
        *q.among_processes(gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, *q.PROCESS)),
        text="Host memory of the largest process and of the median one, sidecars "
        "included. Fleet names the largest.",
        alerts=("JaxmonHostMemoryGrowth",),
    )
    yield timeseries(1903, "File descriptors in use")(
        Target(descriptors.max(), "highest"),
        text="Open file descriptors as a fraction of the limit, of the process with "
        "most. At 100 % it can open no more files or connections.",
        thresholds=q.above(0.8),
    )
    runs = q.per_minute(collections.sum("generation"))
    yield timeseries(1904, "Garbage collections")(
        Target(runs, "generation {{generation}}"),
        text="Python's collections per minute, by generation. Many of generation 2 in "
        "a hot loop cost milliseconds each.",
    )
    used = gauge(catalog.CONTAINER_MEMORY_WORKING_SET_BYTES, *q.PROCESS)
    limit = gauge(catalog.CONTAINER_MEMORY_LIMIT_BYTES, *q.PROCESS)
    held = counter(catalog.CONTAINER_CPU_THROTTLED_SECONDS, *q.PROCESS).rate()
    killed = counter(catalog.CONTAINER_OOM_KILLS, *q.PROCESS).increase()
    yield timeseries(1909, "Container memory vs limit")(
        Target(used.max(), "highest"),
        Target(limit.min(), "lowest limit"),
        text="Working set of the largest cgroup of a process, and the lowest limit of "
        "any. Where they meet, the OOM killer strikes, which JAX cannot report.",
        no_value="No limit",
    )
    yield timeseries(1910, "Container CPU throttling")(
        *q.among_processes(held.of_unit("")),
        text="Seconds per second, summed over threads, that the cgroup was "
        "CPU-throttled. Causes step-time jitter.",
        no_value="No limit",
    )
    yield timeseries(1911, "OOM kills")(
        Target((killed.max() > 0), "most"),
        text="Processes in a cgroup killed by the OOM killer, where most were: for "
        "example a data-loader worker, whose loss hangs the loop.",
        no_value="None",
    )


@row(61, "Hosts", lines=(3, 2))
def machines() -> Iterator[Panel]:
    """Return CPU, memory, pressure, network and disks of hosts."""
    by = ("instance", "directory")
    pressure = q.host_rate(catalog.HOST_PRESSURE_SECONDS, eq("kind", "some"))
    disk = q.host(catalog.HOST_DISK_AVAILABLE_BYTES) / q.host(
        catalog.HOST_DISK_SIZE_BYTES
    )
    memory = q.host(catalog.HOST_MEMORY_AVAILABLE_BYTES)
    yield timeseries(1906, "Host CPU by mode")(
        q.host_rate(catalog.HOST_CPU_SECONDS).sum("mode"),
        text="CPU time of the selected hosts, by mode. iowait points to storage, steal "
        "to an overcommitted machine.",
        no_value="No sidecar",
        unbounded=True,
        stacked="percent",
    )
    yield timeseries(1908, "Host memory available to programs")(
        Target(memory.least(q.FEW), "{{instance}}"),
        text="Memory available without swapping, on the 20 hosts with least.",
        no_value="No sidecar",
    )
    yield timeseries(1912, "Host pressure")(
        pressure.max("resource"),
        text="Fraction of time some task was stalled on CPU, memory or I/O (PSI), on "
        "the worst host. Memory pressure precedes OOM kills.",
        no_value="Not available",
    )
    yield timeseries(1913, "Host network")(
        *(
            Target(q.host_rate(metric).sum(*q.BY_HOST).max(), direction)
            for metric, direction in (
                (catalog.HOST_NETWORK_TRANSMIT_BYTES, "sent"),
                (catalog.HOST_NETWORK_RECEIVE_BYTES, "received"),
            )
        ),
        text="Traffic of all physical network interfaces of the host with most: input "
        "data, checkpoints and cross-host collectives.",
        no_value="Not available",
    )
    yield table(1914, "Free disk space")(
        Target(disk.min(*by).bottomk(q.FEW), "Free", q.below(0.1)),
        text="File systems configured with --disk, such as the persistent cache's. If "
        "that is full, JAX recompiles everything.",
        no_value="No --disk configured",
        sort="Free",
    )


@row(7, "Memory", lines=(2,))
def memory(slos: Slos) -> Iterator[Panel]:
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
def device_memory() -> Iterator[Panel]:
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
