"""Requests: rate, errors, latency, cold and warm."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import Histogram, counter, eq, gauge, histogram
from jaxmon.artifacts.slo import Slos


def oncall(slos: Slos) -> Row:
    """Return the signals of a model server."""
    by = ("job", "route")
    named = "{{job}} {{route}}"
    outcome = counter(catalog.REQUESTS, *q.PROCESS).rate().sum("outcome")
    # Often the first of its route, with which the series begin.
    cold = counter(catalog.REQUESTS, eq("start", "cold"), *q.PROCESS).rise().sum(*by)
    every = counter(catalog.REQUESTS, *q.PROCESS).rise().sum(*by)
    return Row(
        3,
        "Requests",
        (
            Panel(
                id=201,
                title="Requests by outcome",
                kind="timeseries",
                text="Requests that ended, per second. A fall is as bad as a rise of "
                "errors: look whether callers still reach the service.",
                targets=(Target(outcome, "{{outcome}}"),),
                width=8,
                stacked="normal",
            ),
            Panel(
                id=202,
                title="Share of requests that fail",
                kind="timeseries",
                text="Errors of the service per request, by route; the line is the "
                "objective. Errors of the caller do not count.",
                targets=(
                    Target(q.share(q.failed().sum(*by), q.served().sum(*by)), named),
                ),
                width=8,
                thresholds=q.budget(slos, "request-error"),
                alerts=q.alert_of(slos, "request-error"),
            ),
            Panel(
                id=203,
                title="Requests in progress",
                kind="timeseries",
                text="Requests being served now. When they pile up while their rate "
                "falls, something blocks: a compile, a device, a lock.",
                targets=(
                    Target(
                        gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS).sum(*by), named
                    ),
                ),
                width=8,
                alerts=("JaxmonServiceVanished",),
            ),
            Panel(
                id=204,
                title="Latency of warm requests",
                kind="timeseries",
                text="Requests that waited for no compile; the line is the objective "
                "for p95. A slow p99 with a good p50 points at queueing or GC.",
                targets=_quantiles("warm", 0.5, 0.95, 0.99),
                width=8,
                thresholds=q.latency(slos, "warm-latency"),
                alerts=q.alert_of(slos, "warm-latency"),
            ),
            Panel(
                id=205,
                title="Latency of cold requests",
                kind="timeseries",
                text="Requests that waited for a compile. Warm up at deployment and "
                "share a persistent cache to have none.",
                targets=_quantiles("cold", 0.5, 0.95),
                width=8,
                no_value="No cold request",
            ),
            Panel(
                id=206,
                title="Share of cold requests",
                kind="timeseries",
                text="Requests that waited for a compile, per request. Expected after "
                "a start; otherwise shapes vary: see recompiles by cause.",
                targets=(Target(q.share(cold, every), named),),
                width=8,
                thresholds=q.budget(slos, "cold-start"),
                alerts=(*q.alert_of(slos, "cold-start"), "JaxmonColdStarts"),
            ),
            Panel(
                id=207,
                title="Waiting in queues",
                kind="timeseries",
                text="What waits in front of the devices. Growing while batches are "
                "full: more replicas. Growing while they are not: something blocks.",
                targets=(
                    Target(
                        gauge(catalog.QUEUE_DEPTH, *q.PROCESS).sum("job", "queue"),
                        "{{job}} {{queue}}",
                    ),
                ),
                no_value="No queue is named",
            ),
            Panel(
                id=208,
                title="Fill of batches",
                kind="timeseries",
                text="Share of a batch that was asked for; the rest is padding, "
                "computed for nothing. Low under load: batches close too early.",
                targets=(Target(q.known(_fill().mean(*by)), named),),
                maximum=1,
                no_value="No batch is counted",
            ),
        ),
    )


def debug() -> Row:
    """Return how latency is distributed, and which routes are slow."""
    by = ("job", "route", "start")
    p95 = histogram(catalog.REQUEST_SECONDS, *q.PROCESS).quantile(0.95, *by)
    return Row(
        14,
        "Requests",
        (
            Panel(
                id=1401,
                title="Warm requests by latency",
                kind="heatmap",
                text="How many warm requests took how long. Two bands: two kinds of "
                "requests, or some that wait for something.",
                targets=(Target(q.request_seconds("warm").buckets(), "{{le}}"),),
                width=8,
            ),
            Panel(
                id=1402,
                title="Cold requests by latency",
                kind="heatmap",
                text="How many requests that paid for a compile took how long.",
                targets=(Target(q.request_seconds("cold").buckets(), "{{le}}"),),
                width=8,
            ),
            Panel(
                id=1403,
                title="p95 by route and start",
                kind="timeseries",
                text="Latency that 95 % of the requests of a route stay below, cold "
                "and warm apart.",
                targets=(Target(q.known(p95), "{{job}} {{route}} {{start}}"),),
                width=8,
            ),
            Panel(
                id=1404,
                title="Waiting in queues by process",
                kind="timeseries",
                text="What waits in each process. One longer than its peers': a slow "
                "process, or requests that are spread unevenly.",
                targets=(
                    Target(
                        gauge(catalog.QUEUE_DEPTH, *q.PROCESS),
                        f"{q.NAMED_PROCESS} {{{{queue}}}}",
                    ),
                ),
                no_value="No queue is named",
            ),
            Panel(
                id=1405,
                title="Batches by fill",
                kind="heatmap",
                text="How many batches were how full. A band below one half: buckets "
                "too coarse for the sizes that come.",
                targets=(Target(_fill().buckets(), "{{le}}"),),
                no_value="No batch is counted",
            ),
        ),
    )


def _fill() -> Histogram:
    return histogram(catalog.BATCH_FILL_RATIO, *q.PROCESS)


def _quantiles(start: str, *quantiles: float) -> tuple[Target, ...]:
    seconds = q.request_seconds(start)
    return tuple(
        Target(q.known(seconds.quantile(one)), f"p{one * 100:g}") for one in quantiles
    )
