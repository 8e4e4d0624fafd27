"""From services to hosts and processes: what differs, memory, transfers, hosts."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import counter, eq, gauge, ne, recorded, up
from jaxmon.symptoms import recorded as symptoms
from jaxmon.symptoms.starts import YOUNG
from jaxmon_alerts.overviews import hosts as overviews
from jaxmon_alerts.overviews import services
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, stat, table, timeseries
from jaxmon_dashboards.boards.rows import functions, monitoring


_ONE_HOST = q.opening("instance", "Debug this host", "debug", "job")
_ROWS = 25


@row(40, "Fleet", lines=(6, 1))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the size and state of the fleet, and one line for each service."""
    agents = gauge(catalog.RUNTIME_INFO, *q.PROCESS)
    hosts = gauge(catalog.BUILD_INFO, *q.HOST).max(*q.BY_HOST)
    running = symptoms.running().where(q.JOB)
    started = symptoms.young(slos.limits.deploy_window).where(q.JOB)
    crashes = symptoms.crashed("1h").where(q.JOB)
    yield stat(4001, "Service count")(
        hosts.count("job").count(),
        text="Services, which are jobs of Prometheus, that run jaxmon.",
    )
    yield stat(4002, "Scraped hosts")(
        hosts.count(), text="Sidecars, and agents that are scraped directly."
    )
    yield stat(4003, "Processes")(
        agents.max(*q.BY_PROCESS).count(),
        text="JAX processes with an agent.",
    )
    yield stat(4004, "New processes")(
        started.sum().or_(running.sum() * 0),
        text="Processes that started within the deploy window: a deployment if they "
        "belong to one service, a crash loop if they are always the same.",
    )
    yield monitoring.glance().panel("Targets down")
    yield stat(4005, "Crashes")(
        crashes.sum().or_(running.sum() * 0),
        text="Processes that ended without finishing within an hour.",
        thresholds=q.above(1),
    )
    devices = gauge(catalog.DEVICE_INFO, ne("uuid", ""), *q.PROCESS)
    used = devices.max(*q.BY_HOST, "uuid").count("job")
    versions = agents.count("job", "jax", "jaxlib", "platform_version").count("job")
    young = recorded(YOUNG, q.JOB, labels=("job",)).max("job")
    compiling = gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS)
    yield table(4007, "Services of the fleet")(
        Target(hosts.count("job"), "Hosts"),
        Target(agents.max(*q.BY_PROCESS).count("job"), "Processes"),
        Target(used, "Accelerators"),
        Target(up(*q.HOST).avg("job").of_unit("ratio"), "Targets up", q.below(1)),
        Target(young, "Young", q.above(slos.limits.deploy_share)),
        Target(versions, "Versions", q.above(2)),
        Target(compiling.sum("job"), "Compiling"),
        Target(crashes.sum("job").or_(running * 0), "Crashes", q.above(1)),
        text="One line per service. Young: the fraction of its processes that started "
        "recently. Crashes: within an hour. The name selects the service here.",
        cell_links=(q.opening("job", "Only this service, from here down", "fleet"),),
        no_value="No services",
        sort="Processes",
    )


@row(41, "Hosts and processes", lines=(1, 1))
def down(slos: Slos) -> Iterator[Panel]:
    """Return the hosts and processes that stand out, for the way down."""
    agents = gauge(catalog.RUNTIME_INFO, *q.PROCESS).count(*q.BY_HOST)
    load = q.host(catalog.HOST_LOAD_1M) / q.host(catalog.HOST_CPUS)
    left = q.host(catalog.HOST_MEMORY_AVAILABLE_BYTES)
    left = (left / q.host(catalog.HOST_MEMORY_SIZE_BYTES)).max(*q.BY_HOST)
    stalled = q.host_rate(catalog.HOST_PRESSURE_SECONDS, eq("kind", "some"))
    low = q.below(slos.limits.host_memory_left)
    yield table(4101, "Busiest hosts")(
        Target(
            load.max(*q.BY_HOST).of_unit("").topk(_ROWS), "Load per CPU", q.above(1, 2)
        ),
        Target(left.bottomk(_ROWS), "Memory available", low),
        Target(stalled.max(*q.BY_HOST).topk(_ROWS), "Stalled"),
        Target(agents.topk(_ROWS), "Processes"),
        text=f"The {_ROWS} hosts with most load per CPU, least memory available, most "
        "time stalled, and most processes; - for others. Above 1, threads wait for a "
        "core, and the input pipeline with them. The host links to Debug.",
        height=9,
        cell_links=(_ONE_HOST,),
        no_value="No sidecar",
        sort="Load per CPU",
    )
    resident = gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, *q.PROCESS)
    cpu = counter(catalog.PROCESS_CPU_SECONDS, *q.PROCESS).rate()
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS, *q.PROCESS)
    functions = services.PROGRAMS(*q.PROCESS)
    yield table(4102, "Largest processes")(
        Target(resident.max(*q.BY_PROCESS).topk(_ROWS), "Memory"),
        Target(cpu.max(*q.BY_PROCESS).topk(_ROWS), "CPU"),
        Target((oldest > 0).max(*q.BY_PROCESS).topk(_ROWS), "Compiling for"),
        Target(functions.max(*q.BY_PROCESS).topk(_ROWS), "Functions"),
        text=f"The {_ROWS} processes with most host memory, CPU, time in a compile, "
        "and functions, sidecars included; - for others. One that is larger than its "
        "peers may leak; 100 % of CPU is one core.",
        height=9,
        cell_links=(
            _ONE_HOST,
            q.opening(
                *("worker", "Debug this worker on all hosts", "debug"),
                *("job", "instance"),
            ),
        ),
        no_value="No processes",
        sort="Memory",
    )


@row(42, "Versions and programs", lines=(2,))
def differences() -> Iterator[Panel]:
    """Return versions and programs that differ between processes of one service."""
    yield monitoring.debug().panel("Versions of JAX and its platform")
    info = gauge(catalog.PROGRAM_INFO, *q.PROCESS)
    programs = info.count("job", "function", "fingerprint").count("job", "function")
    yield table(4201, "Functions with different programs")(
        Target((programs > 1).topk(_ROWS), "Fingerprints", q.above(2)),
        text="Functions whose latest program is not the same in all processes of a "
        "service. Ranks of one run that differ deadlock in their first collective; "
        "servers may differ by the shapes they saw.",
        height=6,
        no_value="None",
        sort="Fingerprints",
        alerts=("JaxmonProgramsDiverge",),
    )


@row(43, "Starts and compiles", lines=(3,))
def starts(slos: Slos) -> Iterator[Panel]:
    """Return deployments, crash loops, and compiles that many do at once."""
    compiling = gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS)
    yield timeseries(4301, "Young processes by service")(
        recorded(YOUNG, q.JOB, labels=("job",)).worst(10),
        text="Fraction of each service's processes that started within the deploy "
        "window; above the line it counts as a deployment.",
        thresholds=q.above(slos.limits.deploy_share),
        alerts=("JaxmonDeployInProgress",),
        no_value="None",
    )
    yield functions.failures().panel("Process restarts")
    yield timeseries(4302, "Processes compiling")(
        Target((compiling > 0).count(), "compiling"),
        text="Processes that compile at the same time. Many replicas at once compile "
        "the same program, each for itself: share a persistent cache.",
        alerts=("JaxmonThunderingCompilation",),
        no_value="None",
    )


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
    """Return CPU, memory, pressure, network and disks of overviews."""
    by = ("instance", "directory")
    pressure = q.host_rate(catalog.HOST_PRESSURE_SECONDS, eq("kind", "some"))
    disk = q.host(catalog.HOST_DISK_AVAILABLE_BYTES) / q.host(
        catalog.HOST_DISK_SIZE_BYTES
    )
    memory = q.host(catalog.HOST_MEMORY_AVAILABLE_BYTES)
    sent = q.host_rate(catalog.HOST_NETWORK_TRANSMIT_BYTES)
    received = q.host_rate(catalog.HOST_NETWORK_RECEIVE_BYTES)
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
        Target(sent.sum(*q.BY_HOST).max(), "sent"),
        Target(received.sum(*q.BY_HOST).max(), "received"),
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
        overviews.DEVICE_MEMORY(q.JOB).worst(q.FEW),
        text="Fraction of JAX's memory limit in use on the fullest device of each "
        "host, of the 20 fullest hosts. At the line the next allocation may fail. Not "
        "available on CPUs.",
        thresholds=q.above(slos.limits.device_memory),
        alerts=("JaxmonDeviceMemoryHigh", "JaxmonOutOfMemory"),
    )
    yield timeseries(604, "Resident memory of the largest process")(
        overviews.RESIDENT(q.JOB).worst(q.FEW),
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
    moved = counter(catalog.HOST_TRANSFERS, *q.PROCESS).rate()
    size = counter(catalog.HOST_TRANSFER_BYTES, *q.PROCESS).rate()
    blocked = counter(catalog.HOST_TRANSFER_SECONDS, *q.PROCESS).rate()
    waits = counter(catalog.HOST_SYNCS, *q.PROCESS).rate()
    waited = counter(catalog.HOST_SYNC_SECONDS, *q.PROCESS).rate()
    yield timeseries(2101, "Transfers")(
        *(moved.max("direction"), Target(waits.max(), "waits")),
        text="Transfers and syncs per second, of the process with most. As many as "
        "steps: a line of the training loop reads a value each time, and the device "
        "idles meanwhile; `jaxmon explain` names the line.",
    )
    yield timeseries(2102, "Bytes transferred")(
        size.max("direction"),
        text="Bytes transferred per second, of the process with most. NumPy arguments "
        "of cached calls are not included.",
    )
    yield timeseries(2103, "Time blocked on transfers")(
        *(blocked.max("direction"), Target(waited.max(), "waits")),
        text="Fraction of one thread's time blocked on transfers and syncs, in the "
        "worst process, including waiting for results; can exceed 1 with several "
        "threads.",
        unbounded=True,
    )
