"""Processes and hosts beneath JAX."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, timeseries
from jaxmon.artifacts.dashboards.model import Line, Row, Target
from jaxmon.artifacts.promql import counter, eq, gauge, time


def debug() -> Row:
    """
    Return CPU, memory, descriptors and garbage collection, then what is around them.
    """
    lines = (*_processes(), _containers(), *_hosts())
    return row(19, "Processes and hosts", *lines)


def _processes() -> tuple[Line, ...]:
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
                Target(cpu, q.NAMED_PROCESS),
                text="100 % is one core. A training process at one core exactly is "
                "often bound by Python: data loading, or dispatch.",
            ),
            timeseries(
                1902,
                "Resident memory",
                Target(resident.sum(*q.BY_PROCESS), q.NAMED_PROCESS),
                text="Host memory of each process.",
                alerts=("JaxmonHostMemoryGrowth",),
            ),
            timeseries(
                1903,
                "File descriptors in use",
                Target(descriptors, q.NAMED_PROCESS),
                text="Share of what the process may open. At 100 % it can open neither "
                "files nor connections.",
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
                Target(age.max(*q.BY_PROCESS), q.NAMED_PROCESS),
                text="Time since each process started; a saw tooth is a crash loop.",
            ),
        ),
    )


def _containers() -> Line:
    used = gauge(catalog.CONTAINER_MEMORY_WORKING_SET_BYTES, *q.PROCESS)
    limit = gauge(catalog.CONTAINER_MEMORY_LIMIT_BYTES, *q.PROCESS)
    held = counter(catalog.CONTAINER_CPU_THROTTLED_SECONDS, *q.PROCESS).rate()
    killed = counter(catalog.CONTAINER_OOM_KILLS, *q.PROCESS).increase()
    return line(
        timeseries(
            1909,
            "Container memory of its limit",
            Target(
                promql.ratio(used.max(*q.BY_PROCESS), limit.max(*q.BY_PROCESS)),
                q.NAMED_PROCESS,
            ),
            text="Working set of the control group of each process. At 100 % the "
            "kernel kills, and no alert of JAX sees why.",
            maximum=1,
            thresholds=q.above(0.9),
            no_value="No limit",
        ),
        timeseries(
            1910,
            "Container held back",
            Target(held.max(*q.BY_PROCESS).of_unit(""), q.NAMED_PROCESS),
            text="Seconds per second, over its threads, in which the control group "
            "could not run, its CPU limit being used up. Steps jitter then.",
            no_value="No limit",
        ),
        timeseries(
            1911,
            "Killed for want of memory",
            Target(killed.max(*q.BY_PROCESS) > 0, q.NAMED_PROCESS),
            text="Processes of the control group that the kernel killed: a worker of "
            "the data loader, for example, whose loss hangs the loop.",
            no_value="None",
        ),
    )


def _hosts() -> tuple[Line, ...]:
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
                text="What all cores of the chosen hosts do. iowait points at storage, "
                "steal at a crowded machine.",
                stacked="percent",
            ),
            timeseries(
                1907,
                "Host load per CPU",
                Target(load.of_unit(""), named),
                text="Runnable threads per core. Above 1 they queue, and the input "
                "pipeline with them.",
                thresholds=q.above(1),
            ),
            timeseries(
                1908,
                "Host memory available to programs",
                Target(available, named),
                text="What programs can get without swapping.",
            ),
        ),
        line(
            timeseries(
                1912,
                "Host pressure",
                Target(waited.max(*by, "resource"), f"{named} {{{{resource}}}}"),
                text="Share of time in which some task waited for CPU, memory or "
                "storage. Memory pressure comes before the kernel kills.",
                maximum=1,
                no_value="Not known here",
            ),
            timeseries(
                1913,
                "Host network",
                Target(sent, f"{named} sent"),
                Target(received, f"{named} received"),
                text="Traffic of all network cards of each host: input data, "
                "checkpoints, and collectives that leave the host.",
                no_value="Not known here",
            ),
            timeseries(
                1914,
                "Disk left",
                Target(left, f"{named} {{{{directory}}}}"),
                text="Of the file systems that the sidecar was told of, as the "
                "persistent cache's. A full one makes JAX compile everything again.",
                maximum=1,
                thresholds=q.below(0.1),
                no_value="No --disk given",
            ),
        ),
    )
