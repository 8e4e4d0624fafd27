"""Requests: rate, errors, latency, cold and warm."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import RATE_INTERVAL, counter, eq, histogram
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Panel,
    Target,
    heatmap,
    row,
    table,
    timeseries,
)


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


@row(53, "Serverless", lines=(2,), collapsed=True)
def serverless() -> Iterator[Panel]:
    """Return how instances of serverless functions start."""
    started = histogram(catalog.INSTANCE_START_SECONDS, *q.PROCESS)
    latest = started.bucket.latest(RATE_INTERVAL)
    yield timeseries(210, "Invocations by instance start")(
        counter(catalog.INVOCATIONS, *q.PROCESS).rate().sum("instance_start"),
        text="Invocations of serverless functions per second; cold: the first of their "
        "process. Many cold ones: instances end too early, or the load varies. A cold "
        "request, in Requests, waited for a compile.",
        stacked="normal",
        no_value="No invocations",
    )
    yield timeseries(211, "Instance start, p50 and p95")(
        *(
            Target(latest.quantile(part).of_unit("seconds"), f"p{part * 100:g}")
            for part in (0.5, 0.95)
        ),
        text="Time from the start of a process to its first invocation: imports and "
        "loading, before any compile; of the processes that run. A smaller image or "
        "more warm instances shorten it.",
        no_value="No invocations",
    )


@row(62, "Tenants; empty unless the program names them", lines=(1,), collapsed=True)
def tenants(slos: Slos) -> Iterator[Panel]:
    """Return one line for each tenant."""
    by = ("job", "tenant")
    failed = counter(catalog.TENANT_REQUESTS, eq("outcome", "error"), *q.PROCESS)
    served = counter(catalog.TENANT_REQUESTS, *q.PROCESS)
    p95 = histogram(catalog.TENANT_REQUEST_SECONDS, *q.HOST).quantile(0.95, *by)
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
    seconds = histogram(catalog.REQUEST_SECONDS, *q.PROCESS)
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
