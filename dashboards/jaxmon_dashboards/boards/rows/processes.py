"""Panels of processes and hosts, and of the replicas of a service."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.promql import Expr, Matcher, counter, eq, gauge, histogram, ne
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, stat, table, timeseries
from jaxmon_dashboards.boards.rows import compiles, services


@row(19, "Processes", lines=(4, 3))
def debug() -> Iterator[Panel]:
    """Return CPU, memory, descriptors and collections, then the container."""
    cpu = counter(catalog.PROCESS_CPU_SECONDS, *q.PROCESS).rate().sum(*q.BY_PROCESS)
    resident = gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, *q.PROCESS)
    collections = counter(catalog.PYTHON_GC_COLLECTIONS, *q.PROCESS).rate()
    yield timeseries(1901, "CPU by process")(
        cpu.worst(q.FEW),
        text="Of the 20 busiest processes; 100 % is one core. A training process at "
        "exactly one core is often limited by Python: data loading or dispatch.",
        unbounded=True,
    )
    yield timeseries(1902, "Resident memory")(
        resident.sum(*q.BY_PROCESS).worst(q.FEW),
        text="Host memory of the 20 largest processes.",
        alerts=("JaxmonHostMemoryGrowth",),
    )
    yield timeseries(1903, "File descriptors in use")(
        promql.ratio(
            gauge(catalog.PROCESS_OPEN_FDS, *q.PROCESS).sum(*q.BY_PROCESS),
            gauge(catalog.PROCESS_MAX_FDS, *q.PROCESS).sum(*q.BY_PROCESS),
        ).worst(q.FEW),
        text="Open file descriptors as a fraction of the limit. At 100 % the process "
        "can open no more files or connections.",
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
        promql.ratio(used.max(*q.BY_PROCESS), limit.max(*q.BY_PROCESS)).worst(q.FEW),
        text="Working set of the 20 fullest cgroups of processes. At 100 % the OOM "
        "killer strikes, which JAX cannot report.",
        thresholds=q.above(0.9),
        no_value="No limit",
    )
    yield timeseries(1910, "Container CPU throttling")(
        held.max(*q.BY_PROCESS).of_unit("").worst(q.FEW),
        text="Seconds per second, summed over threads, that the cgroup was "
        "CPU-throttled. Causes step-time jitter.",
        no_value="No limit",
    )
    yield timeseries(1911, "OOM kills")(
        (killed.max(*q.BY_PROCESS) > 0).worst(q.FEW),
        text="Processes in the cgroup killed by the OOM killer: for example a "
        "data-loader worker, whose loss hangs the loop.",
        no_value="None",
    )


@row(61, "Hosts", lines=(3, 2))
def hosts() -> Iterator[Panel]:
    """Return CPU, memory, pressure, network and disks of hosts."""
    by = ("job", "instance")
    waited = q.host_rate(catalog.HOST_PRESSURE_SECONDS, eq("kind", "some"))
    sent = q.host_rate(catalog.HOST_NETWORK_TRANSMIT_BYTES).sum(*by)
    received = q.host_rate(catalog.HOST_NETWORK_RECEIVE_BYTES).sum(*by)
    cpu = q.host_rate(catalog.HOST_CPU_SECONDS).sum("mode")
    yield timeseries(1906, "Host CPU by mode")(
        cpu,
        text="CPU time of the selected hosts, by mode. iowait points to storage, steal "
        "to an overcommitted machine.",
        no_value="No sidecar",
        unbounded=True,
        stacked="percent",
    )
    yield timeseries(1908, "Host memory available to programs")(
        q.host(catalog.HOST_MEMORY_AVAILABLE_BYTES).sum(*by).least(q.FEW),
        text="Memory available without swapping, on the 20 hosts with least.",
        no_value="No sidecar",
    )
    yield timeseries(1912, "Host pressure")(
        waited.max(*by, "resource").worst(q.FEW),
        text="Fraction of time some task was stalled on CPU, memory or I/O (PSI). "
        "Memory pressure precedes OOM kills.",
        no_value="Not available",
    )
    yield timeseries(1913, "Host network")(
        Target(sent.worst(q.FEW), "sent"),
        Target(received.worst(q.FEW), "received"),
        text="Traffic of all physical network interfaces of the 20 hosts with most: "
        "input data, checkpoints and cross-host collectives.",
        no_value="Not available",
    )
    yield timeseries(1914, "Free disk space")(
        promql.ratio(
            q.host(catalog.HOST_DISK_AVAILABLE_BYTES).min(*by, "directory"),
            q.host(catalog.HOST_DISK_SIZE_BYTES).min(*by, "directory"),
        ).least(q.FEW),
        text="File systems configured with --disk, such as the persistent cache's. If "
        "that is full, JAX recompiles everything.",
        thresholds=q.below(0.1),
        no_value="No --disk configured",
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
    fill = histogram(catalog.BATCH_FILL_RATIO, *q.PROCESS)
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
        Target(q.defined(fill.mean(*_BY)), "Batch fill"),
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
    seconds = histogram(
        catalog.REQUEST_SECONDS, ne("start", "warm"), *q.PROCESS, rare=True
    )
    current = compiles.oncall(slos)
    yield timeseries(3401, "Time of requests that waited for a compile")(
        (seconds.sum.rise().sum(*_BY) > 0).worst(10),
        text="Latency of cold and delayed requests, added up per graph interval: what "
        "compiles cost callers. Warm up before a replica takes traffic.",
        alerts=("JaxmonColdStartBudgetBurn",),
        no_value="None",
    )
    yield current.panel("Oldest compile in progress")
    yield compiles.debug(slos).panel("Persistent cache hit rate")
    yield current.panel("Recompiles by cause")


@row(36, "Replicas", lines=(2, 2))
def replicas() -> Iterator[Panel]:
    """Return which replica has more to do, or is slower, than the others."""
    served = _counted().sum(*q.BY_PROCESS)
    failed = q.share(
        _counted(eq("outcome", "error")).sum(*q.BY_PROCESS),
        _counted(ne("outcome", "client_error")).sum(*q.BY_PROCESS),
    )
    yield timeseries(3601, "Load of the busiest replicas")(
        served.relative_to(served.median("job"), "job").of_unit("times").worst(10),
        text="Requests of a replica as a multiple of its service's median. Far above "
        "1: the load balancer favours it, or pins connections.",
    )
    yield timeseries(3602, "Slowest replicas")(
        q.defined(q.request_seconds("warm").mean(*q.BY_PROCESS)).worst(10),
        text="Mean latency of warm requests. One replica far above the others: its "
        "host, its device, or its neighbours.",
        no_value="No warm requests",
    )
    yield timeseries(3603, "Replicas with most requests in progress")(
        gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS).sum(*q.BY_PROCESS).worst(10),
        text="One far above its peers hangs or is slow; the load balancer should take "
        "it out.",
        alerts=("JaxmonRequestsHang", "JaxmonReplicaSlow"),
    )
    yield timeseries(3604, "Replicas with most errors")(
        (failed > 0).worst(10),
        text="Fraction of a replica's requests that failed. One replica alone: restart "
        "it; all of them: the input, or what they call.",
        no_value="No errors",
    )


def _counted(*matchers: Matcher) -> Expr:
    return counter(catalog.REQUESTS, *matchers, *q.PROCESS).rate()
