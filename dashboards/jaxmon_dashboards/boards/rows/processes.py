"""Panels of processes and hosts, and of the replicas of a service."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import RATE_INTERVAL, Expr, Matcher, counter, eq, events, gauge, ne
from jaxmon.symptoms.recorded import replica_mean
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, stat, table, timeseries
from jaxmon_dashboards.boards.rows import compiles, services


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
def hosts() -> Iterator[Panel]:
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


_BY = ("job", "route")


@row(33, "Services", lines=(8, 1))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the state of all services, and one line for each of their routes."""
    current = services.oncall(slos)
    in_progress = gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS)
    oldest = gauge(catalog.REQUEST_OLDEST_SECONDS, *q.PROCESS).max()
    hang = q.above(slos.limits.hang_after)
    yield current.panel("Requests now")
    yield current.panel("Request errors")
    yield current.panel("p95 now")
    yield stat(3302, "Cold requests")(
        q.cold(slos).max(),
        text="Fraction of requests of the worst route that waited for a compile, cold "
        "or delayed. Expected for a few minutes after a deployment.",
        thresholds=q.budget(slos, "cold-start"),
        no_value="None",
    )
    yield stat(3303, "In progress")(
        in_progress.sum(),
        text="Requests in progress. Rising while the rate falls: they pile up.",
    )
    yield current.panel("Oldest request")
    yield stat(3305, "Queued")(
        gauge(catalog.QUEUE_DEPTH, *q.PROCESS).sum(),
        text="Items waiting in the queues of all processes.",
    )
    yield stat(3306, "Replicas")(
        in_progress.max(*q.BY_PROCESS).count(),
        text="Processes that have served a request.",
        no_value="None",
    )
    oldest = gauge(catalog.REQUEST_OLDEST_SECONDS, *q.PROCESS).max(*_BY)
    fill = overviews.BATCH_FILL(q.JOB).max(*_BY)
    p50, p95, p99 = (q.latency_of(part, *_BY) for part in (0.5, 0.95, 0.99))
    yield table(3307, "Routes")(
        Target(_counted().sum(*_BY), "Requests"),
        Target(
            q.failing(slos).max(*_BY),
            "Errors",
            q.budget(slos, "request-error"),
        ),
        Target(p50, "p50"),
        Target(p95, "p95", q.latency(slos, "warm-latency")),
        Target(p99, "p99"),
        Target(
            q.cold(slos).max(*_BY),
            "Cold",
            q.budget(slos, "cold-start"),
        ),
        Target(
            gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS).sum(*_BY), "In progress"
        ),
        Target(oldest, "Oldest", hang),
        Target(q.defined(fill), "Batch fill"),
        text="One line per route, coloured by its objectives. Quantiles are of all "
        "successful requests. The name selects the service.",
        height=7,
        cell_links=(q.opening("job", "Show only this service", "serving"),),
        no_value="No requests",
        sort="Requests",
    )


@row(34, "Compile stalls", lines=(4,))
def stalls(slos: Slos) -> Iterator[Panel]:
    """Return what compiles cost those who wait for them."""
    waited = events.REQUEST_SECONDS.within(RATE_INTERVAL, ne("start", "warm"), q.JOB)
    current = compiles.oncall(slos)
    yield timeseries(3401, "Time of requests that waited for a compile")(
        waited.sum("start"),
        text="Latency of cold and delayed requests, added up per graph interval: what "
        "compiles cost callers. Warm up before a replica takes traffic.",
        alerts=("JaxmonColdStartBudgetBurn",),
        stacked="normal",
        no_value="None",
    )
    yield current.panel("Oldest compile in progress")
    yield compiles.debug(slos).panel("Warm-up, and compiles after it")
    yield current.panel("Recompiles by cause")


@row(36, "Replicas", lines=(2, 2))
def replicas(slos: Slos) -> Iterator[Panel]:
    """Return which replica has more to do, or is slower, than the others."""
    served, failed = (
        _counted(*matchers).sum(*q.BY_PROCESS)
        for matchers in ((), (eq("outcome", "error"),))
    )
    running = gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS).sum(*q.BY_PROCESS)
    yield timeseries(3601, "Load of the busiest replicas")(
        *q.among_processes(served),
        text="Requests per second of the busiest replica and of the median one. Far "
        "above it: the load balancer favours a replica, or pins connections.",
    )
    yield timeseries(3602, "Slowest replicas")(
        replica_mean("10m", slos.limits).where(q.JOB).worst(10),
        text="Mean latency of warm requests within ten minutes, of replicas with "
        "enough of them. One far above the others: its host, its device, or its "
        "neighbours.",
        no_value="Too few warm requests",
    )
    yield table(3603, "Replicas with most requests in progress")(
        Target(running.topk(10), "In progress"),
        text="One far above its peers hangs or is slow; the load balancer should take "
        "it out.",
        alerts=("JaxmonRequestsHang", "JaxmonReplicaSlow"),
        sort="In progress",
    )
    yield table(3604, "Replicas with most errors")(
        Target((failed > 0).topk(10), "Errors"),
        text="Requests per second that fail. One replica alone: restart it; all of "
        "them: the input, or what they call.",
        no_value="No errors",
        sort="Errors",
    )


def _counted(*matchers: Matcher) -> Expr:
    return counter(catalog.REQUESTS, *matchers, *q.PROCESS).rate()
