"""Requests: rate, errors, latency, cold and warm; and the replicas that serve them."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.symptoms.recorded import replica_mean
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Panel,
    Target,
    heatmap,
    row,
    stat,
    table,
    timeseries,
)
from jaxmon_dashboards.boards.rows import functions, services


_BY = ("job", "route")


@row(3, "Requests", lines=(4, 3, 2))
def oncall(slos: Slos) -> Iterator[Panel]:
    """Return the signals of a model server."""
    fill = overviews.BATCH_FILL(q.JOB)
    yield timeseries(201, "Requests by outcome")(
        overviews.REQUESTS(q.JOB).sum("outcome"),
        text="Completed requests per second. A drop is as bad as a rise in errors: "
        "check whether clients still reach the service.",
        stacked="normal",
    )
    yield timeseries(202, "Request error ratio")(
        q.failing(slos).worst(q.FEW),
        text="Server errors and callers who waited long and left, of the 20 routes "
        "with the most; the line is the objective. Other errors of clients do not "
        "count.",
        unbounded=True,
        thresholds=q.budget(slos, "request-error"),
        alerts=q.alert_of(slos, "request-error"),
        no_value="No errors",
    )
    yield timeseries(204, "Latency of requests")(
        *(Target(q.latency_of(part), f"p{part * 100:g}") for part in (0.5, 0.95, 0.99)),
        text="All successful requests, those that waited for a compile included; the "
        "line is the objective for p95 of warm ones. A slow p99 with a good p50 points "
        "at queueing, compiles or GC.",
        thresholds=q.latency(slos, "warm-latency"),
        alerts=q.alert_of(slos, "warm-latency"),
    )
    yield timeseries(209, "Oldest request in progress")(
        overviews.REQUEST_OLDEST(q.JOB).worst(q.FEW),
        text="Age of the oldest request in progress, of the 20 worst routes. If it "
        "grows without end, that request hangs; if the rate is 0 as well, all do.",
        thresholds=q.above(slos.limits.hang_after),
        alerts=("JaxmonRequestsHang", "JaxmonReplicaSlow"),
    )
    yield timeseries(203, "Requests in progress")(
        overviews.REQUESTS_IN_PROGRESS(q.JOB).worst(q.FEW),
        text="Requests in progress, of the 20 routes with the most. If they pile up "
        "while the rate falls, something is blocking: a compile, a device, a lock.",
        alerts=("JaxmonServiceVanished", "JaxmonRequestsHang"),
    )
    yield timeseries(205, "Latency of cold and warm requests")(
        Target(q.latency_of(0.95, start="warm"), "warm p95"),
        Target(q.latency_of(0.95, start="cold"), "cold p95"),
        Target(q.latency_of(0.95, start="delayed"), "delayed p95"),
        text="Successful requests that did not wait for a compile, those that did, and "
        "delayed: for one that was not on their behalf. Warm up at deployment and "
        "share a persistent cache to have only warm ones.",
        alerts=("JaxmonColdStartBudgetBurn",),
    )
    yield timeseries(206, "Cold request ratio")(
        q.cold(slos).worst(q.FEW),
        text="Fraction of requests that waited for a compile, cold or delayed, of the "
        "20 routes with the most. Expected after startup; otherwise shapes vary: see "
        "Recompiles by cause.",
        unbounded=True,
        thresholds=q.budget(slos, "cold-start"),
        alerts=("JaxmonColdStartBudgetBurn",),
        no_value="No cold requests",
    )
    yield timeseries(207, "Queue depth")(
        overviews.QUEUE_DEPTH(q.JOB).worst(q.FEW),
        text="Items waiting in the 20 longest queues. Growing while batches are full: "
        "add replicas. Growing while they are not: something is blocking.",
        no_value="No queues",
    )
    yield timeseries(208, "Batch fill")(
        q.defined(fill).and_(fill.over_range("min").bottomk(q.FEW)),
        text="Requested fraction of each batch, of the 20 routes with the least; the "
        "rest is padding. Low under load: batches close too early.",
        no_value="No batches",
    )


@row(53, "Serverless", lines=(2,), collapsed=True, no_value="No invocations")
def serverless() -> Iterator[Panel]:
    """Return how instances of serverless functions start."""
    started = promql.histogram(catalog.INSTANCE_START_SECONDS, *q.PROCESS)
    latest = started.bucket.latest(promql.RATE_INTERVAL)
    yield timeseries(210, "Invocations by instance start")(
        promql.counter(catalog.INVOCATIONS, *q.PROCESS).rate().sum("instance_start"),
        text="Invocations of serverless functions per second; cold: the first of their "
        "process. Many cold ones: instances end too early, or the load varies. A cold "
        "request, in Requests, waited for a compile.",
        stacked="normal",
    )
    yield timeseries(211, "Instance start, p50 and p95")(
        *(
            Target(latest.quantile(part).of_unit("seconds"), f"p{part * 100:g}")
            for part in (0.5, 0.95)
        ),
        text="Time from the start of a process to its first invocation: imports and "
        "loading, before any compile; of the processes that run. A smaller image or "
        "more warm instances shorten it.",
    )


@row(62, "Tenants; empty unless the program names them", lines=(1,), collapsed=True)
def tenants(slos: Slos) -> Iterator[Panel]:
    """Return one line for each tenant."""
    by = ("job", "tenant")
    failed = promql.counter(
        catalog.TENANT_REQUESTS, promql.eq("outcome", "error"), *q.PROCESS
    )
    served = promql.counter(catalog.TENANT_REQUESTS, *q.PROCESS)
    p95 = promql.histogram(catalog.TENANT_REQUEST_SECONDS, *q.HOST).quantile(0.95, *by)
    yield table(212, "Requests by tenant")(
        Target(served.rate().sum(*by).topk(q.FEW), "Requests"),
        Target(failed.rate().sum(*by).topk(q.FEW), "Errors", q.above(1e-9)),
        Target(q.defined(p95).topk(q.FEW), "p95", q.latency(slos, "warm-latency")),
        text="The 20 tenants with most requests, failures, and the slowest; - for "
        "others. A tenant is what the program sets as `request.tenant`.",
        no_value="No tenants",
        sort="Requests",
    )


@row(14, "Requests", lines=(2,))
def debug() -> Iterator[Panel]:
    """Return how latency is distributed, and which routes are slow."""
    seconds = promql.histogram(catalog.REQUEST_SECONDS, *q.PROCESS)
    yield heatmap(1401, "Warm requests by latency")(
        q.request_seconds("warm").buckets(),
        text="Latency distribution of warm requests. Two bands: two kinds of requests, "
        "or some that are waiting for something.",
        no_value="No warm requests",
    )
    yield timeseries(1403, "p95 by outcome and start")(
        q.defined(seconds.quantile(0.95, "outcome", "start")),
        text="p95 latency; Routes has it by route. Errors at the length of a timeout: "
        "something that the route calls is unresponsive.",
    )


@row(33, "Services", lines=(8, 1))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the state of all services, and one line for each of their routes."""
    current = services.oncall(slos)
    in_progress = promql.gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS)
    oldest = promql.gauge(catalog.REQUEST_OLDEST_SECONDS, *q.PROCESS).max()
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
        promql.gauge(catalog.QUEUE_DEPTH, *q.PROCESS).sum(),
        text="Items waiting in the queues of all processes.",
    )
    yield stat(3306, "Replicas")(
        in_progress.max(*q.BY_PROCESS).count(),
        text="Processes that have served a request.",
        no_value="None",
    )
    oldest = promql.gauge(catalog.REQUEST_OLDEST_SECONDS, *q.PROCESS).max(*_BY)
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
            promql.gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS).sum(*_BY),
            "In progress",
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
    waited = promql.events.REQUEST_SECONDS.within(
        promql.RATE_INTERVAL, promql.ne("start", "warm"), q.JOB
    )
    current = functions.oncall(slos)
    yield timeseries(3401, "Time of requests that waited for a compile")(
        waited.sum("start"),
        text="Latency of cold and delayed requests, added up per graph interval: what "
        "compiles cost callers. Warm up before a replica takes traffic.",
        alerts=("JaxmonColdStartBudgetBurn",),
        stacked="normal",
        no_value="None",
    )
    yield current.panel("Oldest compile in progress")
    yield functions.debug(slos).panel("Warm-up, and compiles after it")
    yield current.panel("Recompiles by cause")


@row(36, "Replicas", lines=(2, 2))
def replicas(slos: Slos) -> Iterator[Panel]:
    """Return which replica has more to do, or is slower, than the others."""
    served = _counted().sum(*q.BY_PROCESS)
    failed = _counted(promql.eq("outcome", "error")).sum(*q.BY_PROCESS)
    running = promql.gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS).sum(*q.BY_PROCESS)
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


def _counted(*matchers: promql.Matcher) -> promql.Expr:
    return promql.counter(catalog.REQUESTS, *matchers, *q.PROCESS).rate()
