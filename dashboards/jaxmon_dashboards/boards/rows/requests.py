"""Requests: rate, errors, latency, cold and warm."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import counter, gauge, histogram
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, heatmap, row, timeseries


@row(3, "Requests", lines=(4, 3, 2))
def oncall(slos: Slos) -> Iterator[Panel]:
    """Return the signals of a model server."""
    by = ("job", "route")
    every = overviews.REQUESTS(q.JOB)
    yield timeseries(201, "Requests by outcome")(
        every.sum("outcome"),
        text="Completed requests per second. A drop is as bad as a rise in errors: "
        "check whether clients still reach the service.",
        stacked="normal",
    )
    yield timeseries(202, "Request error ratio")(
        q.share(q.failed(*by), q.served(*by)).worst(q.FEW),
        text="Server errors per request, of the 20 routes with the most; the line is "
        "the objective. Client errors do not count.",
        unbounded=True,
        thresholds=q.budget(slos, "request-error"),
        alerts=q.alert_of(slos, "request-error"),
    )
    yield timeseries(203, "Requests in progress")(
        overviews.REQUESTS_IN_PROGRESS(q.JOB).sum(*by).worst(q.FEW),
        text="Requests in progress, of the 20 routes with the most. If they pile up "
        "while the rate falls, something is blocking: a compile, a device, a lock.",
        alerts=("JaxmonServiceVanished", "JaxmonRequestsHang"),
    )
    yield timeseries(209, "Oldest request in progress")(
        overviews.REQUEST_OLDEST(q.JOB).max(*by).worst(q.FEW),
        text="Age of the oldest request in progress, of the 20 worst routes. If it "
        "grows without end, that request hangs; if the rate is 0 as well, all do.",
        thresholds=q.above(slos.limits.hang_after),
        alerts=("JaxmonRequestsHang", "JaxmonReplicaSlow"),
    )
    yield timeseries(204, "Latency of warm requests")(
        *_quantiles("warm", 0.5, 0.95, 0.99),
        text="Successful requests that did not wait for a compile; the line is the "
        "objective for p95. A slow p99 with a good p50 points at queueing or GC.",
        thresholds=q.latency(slos, "warm-latency"),
        alerts=q.alert_of(slos, "warm-latency"),
    )
    yield timeseries(205, "Latency of cold requests")(
        *_quantiles("cold", 0.5, 0.95),
        *_quantiles("delayed", 0.95, lead="delayed "),
        text="Successful requests that waited for a compile; delayed: for one that was "
        "not on their behalf. Warm up at deployment and share a persistent cache to "
        "have none.",
        alerts=("JaxmonColdStartBudgetBurn",),
        no_value="No cold requests",
    )
    yield timeseries(206, "Cold request ratio")(
        q.share(q.cold(*by), every.sum(*by)).worst(q.FEW),
        text="Fraction of requests that waited for a compile, cold or delayed, of the "
        "20 routes with the most. Expected after startup; otherwise shapes vary: see "
        "Recompiles by cause.",
        unbounded=True,
        thresholds=q.budget(slos, "cold-start"),
        alerts=("JaxmonColdStartBudgetBurn",),
    )
    yield timeseries(207, "Queue depth")(
        overviews.QUEUE_DEPTH(q.JOB).sum("job", "queue").worst(q.FEW),
        text="Items waiting in the 20 longest queues. Growing while batches are full: "
        "add replicas. Growing while they are not: something is blocking.",
        no_value="No queues",
    )
    yield timeseries(208, "Batch fill")(
        q.defined(overviews.BATCH_FILL(q.JOB).avg(*by)).least(q.FEW),
        text="Requested fraction of each batch, of the 20 routes with the least; the "
        "rest is padding. Low under load: batches close too early.",
        no_value="No batches",
    )


@row(53, "Serverless", lines=(2,), collapsed=True)
def serverless() -> Iterator[Panel]:
    """Return how instances of serverless functions start."""
    started = histogram(catalog.INSTANCE_START_SECONDS, *q.PROCESS, rare=True)
    p50, p95 = (q.defined(started.quantile(part, "job")) for part in (0.5, 0.95))
    yield timeseries(210, "Invocations by instance start")(
        counter(catalog.INVOCATIONS, *q.PROCESS).rate().sum("instance_start"),
        text="Invocations of serverless functions per second; cold: the first of their "
        "process. Many cold ones: instances end too early, or the load varies. A cold "
        "request, in Requests, waited for a compile.",
        stacked="normal",
        no_value="No invocations",
    )
    yield timeseries(211, "Instance start, p50 and p95")(
        Target(p50.worst(10), "p50"),
        Target(p95.worst(10), "p95"),
        text="Time from the start of a process to its first invocation: imports and "
        "loading, before any compile; of the 10 slowest services. A smaller image or "
        "more warm instances shorten it.",
        no_value="No invocations",
    )


@row(14, "Requests", lines=(3, 2))
def debug() -> Iterator[Panel]:
    """Return how latency is distributed, and which routes are slow."""
    by = ("job", "route", "outcome", "start")
    p95 = histogram(catalog.REQUEST_SECONDS, *q.PROCESS).quantile(0.95, *by)
    yield heatmap(1401, "Warm requests by latency")(
        q.request_seconds("warm").buckets(),
        text="Latency distribution of warm requests. Two bands: two kinds of requests, "
        "or some that are waiting for something.",
    )
    yield heatmap(1402, "Cold requests by latency")(
        q.request_seconds("cold").buckets(),
        text="Latency distribution of cold requests.",
    )
    yield timeseries(1403, "p95 by route, outcome and start")(
        q.defined(p95).worst(q.FEW),
        text="p95 latency, the 20 largest. Errors at the length of a timeout: "
        "something that the route calls is unresponsive.",
    )
    yield timeseries(1404, "Queue depth by process")(
        gauge(catalog.QUEUE_DEPTH, *q.PROCESS).sum(*q.BY_PROCESS, "queue").worst(q.FEW),
        text="Queue depth of the 20 processes with the longest. One longer than its "
        "peers': a slow process, or uneven load balancing.",
    )
    yield heatmap(1405, "Batches by fill")(
        histogram(catalog.BATCH_FILL_RATIO, *q.PROCESS).buckets(),
        text="Distribution of batch fill. A band below one half: buckets too coarse "
        "for the incoming sizes.",
    )


def _quantiles(start: str, *quantiles: float, lead: str = "") -> tuple[Target, ...]:
    return tuple(
        Target(q.latency_of(start, quantile), f"{lead}p{quantile * 100:g}")
        for quantile in quantiles
    )
