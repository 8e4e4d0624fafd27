"""Processes and hosts beneath JAX."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import counter, eq, gauge, time


def debug() -> Row:
    """
    Return CPU, memory, descriptors and garbage collection, then what is around them.
    """
    panels = (*_processes(), *_containers(), *_hosts())
    return Row(19, "Processes and hosts", panels)


def _processes() -> tuple[Panel, ...]:
    cpu = counter(catalog.PROCESS_CPU_SECONDS, *q.PROCESS).rate().sum(*q.BY_PROCESS)
    resident = gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, *q.PROCESS)
    descriptors = promql.ratio(
        gauge(catalog.PROCESS_OPEN_FDS, *q.PROCESS).sum(*q.BY_PROCESS),
        gauge(catalog.PROCESS_MAX_FDS, *q.PROCESS).sum(*q.BY_PROCESS),
    )
    collections = counter(catalog.PYTHON_GC_COLLECTIONS, *q.PROCESS).rate()
    age = time() - gauge(catalog.PROCESS_START_TIME_SECONDS, *q.PROCESS)
    return (
        Panel(
            id=1901,
            title="CPU by process",
            kind="timeseries",
            text="100 % is one core. A training process at one core exactly is often "
            "bound by Python: data loading, or dispatch.",
            targets=(Target(cpu, q.NAMED_PROCESS),),
            width=8,
        ),
        Panel(
            id=1902,
            title="Resident memory",
            kind="timeseries",
            text="Host memory of each process.",
            targets=(Target(resident.sum(*q.BY_PROCESS), q.NAMED_PROCESS),),
            width=8,
            alerts=("JaxmonHostMemoryGrowth",),
        ),
        Panel(
            id=1903,
            title="File descriptors in use",
            kind="timeseries",
            text="Share of what the process may open. At 100 % it can open neither "
            "files nor connections.",
            targets=(Target(descriptors, q.NAMED_PROCESS),),
            width=8,
            maximum=1,
            thresholds=q.above(0.8),
        ),
        Panel(
            id=1904,
            title="Garbage collections",
            kind="timeseries",
            text="Python's collections per minute, by generation. Many of generation "
            "2 in a hot loop cost milliseconds each.",
            targets=(
                Target(
                    q.per_minute(collections.sum("generation")),
                    "generation {{generation}}",
                ),
            ),
        ),
        Panel(
            id=1905,
            title="Age of processes",
            kind="timeseries",
            text="Time since each process started; a saw tooth is a crash loop.",
            targets=(Target(age.max(*q.BY_PROCESS), q.NAMED_PROCESS),),
        ),
    )


def _containers() -> tuple[Panel, ...]:
    used = gauge(catalog.CONTAINER_MEMORY_WORKING_SET_BYTES, *q.PROCESS)
    limit = gauge(catalog.CONTAINER_MEMORY_LIMIT_BYTES, *q.PROCESS)
    held = counter(catalog.CONTAINER_CPU_THROTTLED_SECONDS, *q.PROCESS).rate()
    killed = counter(catalog.CONTAINER_OOM_KILLS, *q.PROCESS).increase()
    return (
        Panel(
            id=1909,
            title="Container memory of its limit",
            kind="timeseries",
            text="Working set of the control group of each process. At 100 % the "
            "kernel kills, and no alert of JAX sees why.",
            targets=(
                Target(
                    promql.ratio(used.max(*q.BY_PROCESS), limit.max(*q.BY_PROCESS)),
                    q.NAMED_PROCESS,
                ),
            ),
            width=8,
            maximum=1,
            thresholds=q.above(0.9),
            no_value="No limit",
        ),
        Panel(
            id=1910,
            title="Container held back",
            kind="timeseries",
            text="Seconds per second, over its threads, in which the control group "
            "could not run, its CPU limit being used up. Steps jitter then.",
            targets=(Target(held.max(*q.BY_PROCESS).of_unit(""), q.NAMED_PROCESS),),
            width=8,
            no_value="No limit",
        ),
        Panel(
            id=1911,
            title="Killed for want of memory",
            kind="timeseries",
            text="Processes of the control group that the kernel killed: a worker of "
            "the data loader, for example, whose loss hangs the loop.",
            targets=(Target(killed.max(*q.BY_PROCESS) > 0, q.NAMED_PROCESS),),
            width=8,
            no_value="None",
        ),
    )


def _hosts() -> tuple[Panel, ...]:
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
        Panel(
            id=1906,
            title="Host CPU by mode",
            kind="timeseries",
            text="What all cores of the chosen hosts do. iowait points at storage, "
            "steal at a crowded machine.",
            targets=(Target(cpu, "{{mode}}"),),
            width=8,
            stacked="percent",
        ),
        Panel(
            id=1907,
            title="Host load per CPU",
            kind="timeseries",
            text="Runnable threads per core. Above 1 they queue, and the input "
            "pipeline with them.",
            targets=(Target(load.of_unit(""), named),),
            width=8,
            thresholds=q.above(1),
        ),
        Panel(
            id=1908,
            title="Host memory available to programs",
            kind="timeseries",
            text="What programs can get without swapping.",
            targets=(Target(available, named),),
            width=8,
        ),
        Panel(
            id=1912,
            title="Host pressure",
            kind="timeseries",
            text="Share of time in which some task waited for CPU, memory or storage. "
            "Memory pressure comes before the kernel kills.",
            targets=(Target(waited.max(*by, "resource"), f"{named} {{{{resource}}}}"),),
            width=8,
            maximum=1,
            no_value="Not known here",
        ),
        Panel(
            id=1913,
            title="Host network",
            kind="timeseries",
            text="Traffic of all network cards of each host: input data, checkpoints, "
            "and collectives that leave the host.",
            targets=(
                Target(sent, f"{named} sent"),
                Target(received, f"{named} received"),
            ),
            width=8,
            no_value="Not known here",
        ),
        Panel(
            id=1914,
            title="Disk left",
            kind="timeseries",
            text="Of the file systems that the sidecar was told of, as the persistent "
            "cache's. A full one makes JAX compile everything again.",
            targets=(Target(left, f"{named} {{{{directory}}}}"),),
            width=8,
            maximum=1,
            thresholds=q.below(0.1),
            no_value="No --disk given",
        ),
    )
