"""Requests: rate, errors, latency, cold and warm."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import heatmap, line, row, timeseries
from jaxmon.artifacts.dashboards.model import Row, Target
from jaxmon.artifacts.promql import Histogram, counter, gauge, histogram, ne
from jaxmon.artifacts.slo import Slos, durations


def oncall(slos: Slos) -> Row:
    """Return the signals of a model server."""
    by = ("job", "route")
    named = "{{job}} {{route}}"
    outcome = counter(catalog.REQUESTS, *q.PROCESS).rate().sum("outcome")
    # Often the first of its route, with which the series begin.
    waiting = counter(catalog.REQUESTS, ne("start", "warm"), *q.PROCESS)
    cold = waiting.rise().sum(*by)
    every = counter(catalog.REQUESTS, *q.PROCESS).rise().sum(*by)
    return row(
        3,
        "Requests",
        line(
            timeseries(
                201,
                "Requests by outcome",
                Target(outcome, "{{outcome}}"),
                text=(
                    "Completed requests per second. A drop is as bad as a rise in "
                    "errors: check whether clients still reach the service."
                ),
                stacked="normal",
            ),
            timeseries(
                202,
                "Request error ratio",
                Target(q.share(q.failed().sum(*by), q.served().sum(*by)), named),
                text=(
                    "Server errors per request, by route; the line is the objective. "
                    "Client errors do not count."
                ),
                thresholds=q.budget(slos, "request-error"),
                alerts=q.alert_of(slos, "request-error"),
            ),
            timeseries(
                203,
                "Requests in progress",
                Target(gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS).sum(*by), named),
                text=(
                    "Requests in progress. If they pile up while the rate falls, "
                    "something is blocking: a compile, a device, a lock."
                ),
                alerts=("JaxmonServiceVanished", "JaxmonRequestsHang"),
            ),
            timeseries(
                209,
                "Oldest request in progress",
                Target(
                    gauge(catalog.REQUEST_OLDEST_SECONDS, *q.PROCESS).max(*by), named
                ),
                text=(
                    "Age of the oldest request in progress. If it grows without end, "
                    "that request hangs; if the rate is 0 as well, all do."
                ),
                thresholds=q.above(durations.seconds(slos.thresholds.hang_after)),
                alerts=("JaxmonRequestsHang",),
            ),
        ),
        line(
            timeseries(
                204,
                "Latency of warm requests",
                *_quantiles("warm", 0.5, 0.95, 0.99),
                text=(
                    "Successful requests that did not wait for a compile; the line is "
                    "the objective for p95. A slow p99 with a good p50 points at "
                    "queueing or GC."
                ),
                thresholds=q.latency(slos, "warm-latency"),
                alerts=q.alert_of(slos, "warm-latency"),
            ),
            timeseries(
                205,
                "Latency of cold requests",
                *_quantiles("cold", 0.5, 0.95),
                *_quantiles("delayed", 0.95, lead="delayed "),
                text="Successful requests that waited for a compile; delayed: for one "
                "that was not on their behalf. Warm up at deployment and share a "
                "persistent cache to have none.",
                alerts=("JaxmonColdLatency",),
                no_value="No cold requests",
            ),
            timeseries(
                206,
                "Cold request ratio",
                Target(q.share(cold, every), named),
                text=(
                    "Fraction of requests that waited for a compile, cold or delayed. "
                    "Expected after "
                    "startup; otherwise shapes vary: see Recompiles by cause."
                ),
                thresholds=q.budget(slos, "cold-start"),
                alerts=(*q.alert_of(slos, "cold-start"), "JaxmonColdStarts"),
            ),
        ),
        line(
            timeseries(
                207,
                "Queue depth",
                Target(
                    gauge(catalog.QUEUE_DEPTH, *q.PROCESS).sum("job", "queue"),
                    "{{job}} {{queue}}",
                ),
                text=(
                    "Items waiting in the program's queues. Growing while batches are "
                    "full: add replicas. Growing while they are not: something is "
                    "blocking."
                ),
                no_value="No queues",
            ),
            timeseries(
                208,
                "Batch fill",
                Target(q.known(_fill().mean(*by)), named),
                text=(
                    "Requested fraction of each batch; the rest is padding. Low under "
                    "load: batches close too early."
                ),
                maximum=1,
                no_value="No batches",
            ),
        ),
    )


def debug() -> Row:
    """Return how latency is distributed, and which routes are slow."""
    by = ("job", "route", "outcome", "start")
    p95 = histogram(catalog.REQUEST_SECONDS, *q.PROCESS).quantile(0.95, *by)
    return row(
        14,
        "Requests",
        line(
            heatmap(
                1401,
                "Warm requests by latency",
                Target(q.request_seconds("warm").buckets(), "{{le}}"),
                text=(
                    "Latency distribution of warm requests. Two bands: two kinds of "
                    "requests, or some that are waiting for something."
                ),
            ),
            heatmap(
                1402,
                "Cold requests by latency",
                Target(q.request_seconds("cold").buckets(), "{{le}}"),
                text="Latency distribution of cold requests.",
            ),
            timeseries(
                1403,
                "p95 by route, outcome and start",
                Target(q.known(p95), "{{job}} {{route}} {{outcome}} {{start}}"),
                text="p95 latency per route. Errors at the length of a timeout: "
                "something that the route calls is unresponsive.",
            ),
        ),
        line(
            timeseries(
                1404,
                "Queue depth by process",
                Target(
                    gauge(catalog.QUEUE_DEPTH, *q.PROCESS),
                    f"{q.NAMED_PROCESS} {{{{queue}}}}",
                ),
                text=(
                    "Queue depth of each process. One longer than its peers': a slow "
                    "process, or uneven load balancing."
                ),
                no_value="No queues",
            ),
            heatmap(
                1405,
                "Batches by fill",
                Target(_fill().buckets(), "{{le}}"),
                text=(
                    "Distribution of batch fill. A band below one half: buckets too "
                    "coarse for the incoming sizes."
                ),
                no_value="No batches",
            ),
        ),
    )


def _fill() -> Histogram:
    return histogram(catalog.BATCH_FILL_RATIO, *q.PROCESS)


def _quantiles(start: str, *quantiles: float, lead: str = "") -> tuple[Target, ...]:
    seconds = q.request_seconds(start)
    return tuple(
        Target(q.known(seconds.quantile(one)), f"{lead}p{one * 100:g}")
        for one in quantiles
    )
