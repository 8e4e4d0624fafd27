"""Process and host panels."""

from __future__ import annotations

from jaxmon import catalog, promql
from jaxmon.promql import counter, eq, gauge, time
from jaxmon_dashboards.boards import hardware
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import PanelLine, Row, Target, line, row, timeseries


def debug() -> Row:
    """
    Return CPU, memory, descriptors and garbage collection, then container and host.
    """
    lines = (*_processes(), _containers(), *_hosts())
    return row(19, "Processes and hosts", *lines)


def _processes() -> tuple[PanelLine, ...]:
    cpu = counter(catalog.PROCESS_CPU_SECONDS, *q.PROCESS).rate().sum(*q.BY_PROCESS)
    resident = gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, *q.PROCESS)
    descriptors = promql.ratio(
        gauge(catalog.PROCESS_OPEN_FDS, *q.PROCESS).sum(*q.BY_PROCESS),
        gauge(catalog.PROCESS_MAX_FDS, *q.PROCESS).sum(*q.BY_PROCESS),
    )
    collections = counter(catalog.PYTHON_GC_COLLECTIONS, *q.PROCESS).rate()
    age = time() - gauge(catalog.PROCESS_START_TIME_SECONDS, *q.PROCESS)
    return (
        line(
            timeseries(
                1901,
                "CPU by process",
                Target(cpu.worst(q.FEW), q.NAMED_PROCESS),
                text=(
                    "Of the 20 busiest processes; 100 % is one core. A training "
                    "process at exactly one core is often limited by Python: data "
                    "loading or dispatch."
                ),
            ),
            timeseries(
                1902,
                "Resident memory",
                Target(resident.sum(*q.BY_PROCESS).worst(q.FEW), q.NAMED_PROCESS),
                text="Host memory of the 20 largest processes.",
                alerts=("JaxmonHostMemoryGrowth",),
            ),
            timeseries(
                1903,
                "File descriptors in use",
                Target(descriptors.worst(q.FEW), q.NAMED_PROCESS),
                text=(
                    "Open file descriptors as a fraction of the limit. At 100 % the "
                    "process can open no more files or connections."
                ),
                maximum=1,
                thresholds=q.above(0.8),
            ),
        ),
        line(
            timeseries(
                1904,
                "Garbage collections",
                Target(
                    q.per_minute(collections.sum("generation")),
                    "generation {{generation}}",
                ),
                text="Python's collections per minute, by generation. Many of "
                "generation 2 in a hot loop cost milliseconds each.",
            ),
            timeseries(
                1905,
                "Age of processes",
                Target(age.max(*q.BY_PROCESS).least(q.FEW), q.NAMED_PROCESS),
                text=(
                    "Time since the 20 youngest processes started; a saw-tooth pattern "
                    "is a crash loop."
                ),
            ),
        ),
    )


def _containers() -> PanelLine:
    used = gauge(catalog.CONTAINER_MEMORY_WORKING_SET_BYTES, *q.PROCESS)
    limit = gauge(catalog.CONTAINER_MEMORY_LIMIT_BYTES, *q.PROCESS)
    held = counter(catalog.CONTAINER_CPU_THROTTLED_SECONDS, *q.PROCESS).rate()
    killed = counter(catalog.CONTAINER_OOM_KILLS, *q.PROCESS).increase()
    return line(
        timeseries(
            1909,
            "Container memory vs limit",
            Target(
                promql.ratio(used.max(*q.BY_PROCESS), limit.max(*q.BY_PROCESS)).worst(
                    q.FEW
                ),
                q.NAMED_PROCESS,
            ),
            text=(
                "Working set of the 20 fullest cgroups of processes. At 100 % the OOM "
                "killer strikes, which JAX cannot report."
            ),
            maximum=1,
            thresholds=q.above(0.9),
            no_value="No limit",
        ),
        timeseries(
            1910,
            "Container CPU throttling",
            Target(held.max(*q.BY_PROCESS).of_unit("").worst(q.FEW), q.NAMED_PROCESS),
            text=(
                "Seconds per second, summed over threads, that the cgroup was "
                "CPU-throttled. Causes step-time jitter."
            ),
            no_value="No limit",
        ),
        timeseries(
            1911,
            "OOM kills",
            Target((killed.max(*q.BY_PROCESS) > 0).worst(q.FEW), q.NAMED_PROCESS),
            text=(
                "Processes in the cgroup killed by the OOM killer: for example a "
                "data-loader worker, whose loss hangs the loop."
            ),
            no_value="None",
        ),
    )


def _hosts() -> tuple[PanelLine, ...]:
    by = ("job", "instance")
    named = "{{job}} {{instance}}"
    some = eq("kind", "some")
    waited = hardware.host_rate(catalog.HOST_PRESSURE_SECONDS, some)
    sent = hardware.host_rate(catalog.HOST_NETWORK_TRANSMIT_BYTES).sum(*by)
    received = hardware.host_rate(catalog.HOST_NETWORK_RECEIVE_BYTES).sum(*by)
    left = promql.ratio(
        hardware.host(catalog.HOST_DISK_AVAILABLE_BYTES).min(*by, "directory"),
        hardware.host(catalog.HOST_DISK_SIZE_BYTES).min(*by, "directory"),
    )
    cpu = hardware.host_rate(catalog.HOST_CPU_SECONDS).sum("mode")
    load = promql.ratio(
        hardware.host(catalog.HOST_LOAD_1M).sum(*by),
        hardware.host(catalog.HOST_CPUS).sum(*by),
    )
    available = hardware.host(catalog.HOST_MEMORY_AVAILABLE_BYTES).sum(*by)
    return (
        line(
            timeseries(
                1906,
                "Host CPU by mode",
                Target(cpu, "{{mode}}"),
                text=(
                    "CPU time of the selected hosts, by mode. iowait points to "
                    "storage, steal to an overcommitted machine."
                ),
                stacked="percent",
            ),
            timeseries(
                1907,
                "Host load per CPU",
                Target(load.of_unit("").worst(q.FEW), named),
                text=(
                    "Load per core of the 20 busiest hosts. Above 1, threads queue, "
                    "and so does the input pipeline."
                ),
                thresholds=q.above(1),
            ),
            timeseries(
                1908,
                "Host memory available to programs",
                Target(available.least(q.FEW), named),
                text="Memory available without swapping, on the 20 hosts with least.",
            ),
        ),
        line(
            timeseries(
                1912,
                "Host pressure",
                Target(
                    waited.max(*by, "resource").worst(q.FEW),
                    f"{named} {{{{resource}}}}",
                ),
                text=(
                    "Fraction of time some task was stalled on CPU, memory or I/O "
                    "(PSI). Memory pressure precedes OOM kills."
                ),
                maximum=1,
                no_value="Not available",
            ),
            timeseries(
                1913,
                "Host network",
                Target(sent.worst(q.FEW), f"{named} sent"),
                Target(received.worst(q.FEW), f"{named} received"),
                text=(
                    "Traffic of all physical network interfaces of the 20 hosts with "
                    "most: input data, checkpoints and cross-host collectives."
                ),
                no_value="Not available",
            ),
            timeseries(
                1914,
                "Free disk space",
                Target(left.least(q.FEW), f"{named} {{{{directory}}}}"),
                text=(
                    "File systems configured with --disk, such as the persistent "
                    "cache's. If that is full, JAX recompiles everything."
                ),
                maximum=1,
                thresholds=q.below(0.1),
                no_value="No --disk configured",
            ),
        ),
    )
