"""Servers: at a glance, what requests wait for, and replica against replica."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.host.formats import durations
from jaxmon.promql import Expr, Matcher, counter, eq, gauge, histogram, ne
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Link,
    PanelLine,
    Row,
    Target,
    line,
    row,
    stat,
    table,
    timeseries,
)
from jaxmon_dashboards.boards.rows import compiles, now, training


_BY = ("job", "route")
_NAMED = "{{job}} {{route}}"
_ONLY = Link(
    "Show only this service",
    "/d/jaxmon-serving?var-job=${__value.text}"
    "&${datasource:queryparam}&${__url_time_range}",
)


def glance(slos: Slos, *, runbooks: str = "") -> Row:
    """Return the state of all services, and one line for each of their routes."""
    return row(33, "Services", _headline(slos, runbooks), _routes(slos))


def _headline(slos: Slos, runbooks: str) -> PanelLine:
    current = now.oncall(slos, runbooks)
    in_progress = gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS)
    oldest = gauge(catalog.REQUEST_OLDEST_SECONDS, *q.PROCESS).max()
    hang = durations.seconds(slos.limits.hang_after)
    return line(
        stat(
            3301,
            Target(_counted().sum(), "Requests"),
            text="Finished requests per second of all selected services.",
            no_value="No requests",
        ),
        current.panel("Request errors"),
        current.panel("Warm p95"),
        stat(
            3302,
            Target(
                q.share(_counted(ne("start", "warm")).sum(), _counted().sum()),
                "Cold requests",
                q.budget(slos, "cold-start"),
            ),
            text=(
                "Fraction of requests that waited for a compile, cold or delayed. "
                "Expected for a few minutes after a deployment."
            ),
            no_value="No requests",
        ),
        stat(
            3303,
            Target(in_progress.sum(), "In progress"),
            text="Requests in progress. Rising while the rate falls: they pile up.",
            no_value="No requests",
        ),
        stat(
            3304,
            Target(oldest, "Oldest request", q.above(hang)),
            text="Age of the oldest request in progress; above the line it hangs.",
            no_value="No requests",
        ),
        stat(
            3305,
            Target(gauge(catalog.QUEUE_DEPTH, *q.PROCESS).sum(), "Queued"),
            text="Items waiting in the queues of all processes.",
            no_value="No queues",
        ),
        stat(
            3306,
            Target(in_progress.max(*q.BY_PROCESS).count(), "Replicas"),
            text="Processes that have served a request.",
            no_value="None",
        ),
        height=4,
    )


def _routes(slos: Slos) -> PanelLine:
    warm = q.request_seconds("warm")
    oldest = gauge(catalog.REQUEST_OLDEST_SECONDS, *q.PROCESS).max(*_BY)
    fill = histogram(catalog.BATCH_FILL_RATIO, *q.PROCESS)
    hang = durations.seconds(slos.limits.hang_after)
    p50, p95, p99 = (q.known(warm.quantile(part, *_BY)) for part in (0.5, 0.95, 0.99))
    return line(
        table(
            3307,
            "Routes",
            Target(_counted().sum(*_BY), "Requests"),
            Target(
                q.share(q.failed(*_BY), q.served(*_BY)),
                "Errors",
                q.budget(slos, "request-error"),
            ),
            Target(p50, "p50"),
            Target(p95, "p95", q.latency(slos, "warm-latency")),
            Target(p99, "p99"),
            Target(
                q.share(_counted(ne("start", "warm")).sum(*_BY), _counted().sum(*_BY)),
                "Cold",
                q.budget(slos, "cold-start"),
            ),
            Target(
                gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS).sum(*_BY), "In progress"
            ),
            Target(oldest, "Oldest", q.above(hang)),
            Target(q.known(fill.mean(*_BY)), "Batch fill"),
            text=(
                "One line per route, coloured by its objectives. Quantiles are of warm "
                "requests. The name selects the service."
            ),
            labels=_BY,
            cell_links=(("job", _ONLY),),
            no_value="No requests",
            sort="Requests",
        ),
        height=7,
    )


def stalls(slos: Slos) -> Row:
    """Return what compiles cost those who wait for them."""
    seconds = histogram(
        catalog.REQUEST_SECONDS, ne("start", "warm"), *q.PROCESS, rare=True
    )
    spent = seconds.sum.rise().sum(*_BY)
    debugged = compiles.debug(slos)
    current = compiles.oncall(slos)
    return row(
        34,
        "Compile stalls",
        line(
            timeseries(
                3401,
                "Time of requests that waited for a compile",
                Target((spent > 0).worst(10), _NAMED),
                text=(
                    "Latency of cold and delayed requests, added up per graph "
                    "interval: what compiles cost callers. Warm up before a replica "
                    "takes traffic."
                ),
                alerts=("JaxmonColdStarts", "JaxmonColdLatency"),
                no_value="None",
            ),
            current.panel("Compiles in progress"),
            current.panel("Oldest compile in progress"),
        ),
        line(
            current.panel("Time spent compiling"),
            debugged.panel("Persistent cache hit rate"),
            current.panel("Recompiles by cause"),
        ),
    )


def throughput(slos: Slos) -> Row:
    """Return what a server that marks its loop makes, such as tokens."""
    loops = training.oncall(slos)
    return row(
        35,
        "Tokens and items",
        line(loops.panel("Items per second"), loops.panel("Steps per second")),
    )


def replicas() -> Row:
    """Return which replica has more to do, or is slower, than the others."""
    each = _counted().sum(*q.BY_PROCESS)
    load = each.relative_to(each.median("job"), "job").of_unit("times")
    in_progress = gauge(catalog.REQUESTS_IN_PROGRESS, *q.PROCESS).sum(*q.BY_PROCESS)
    failed = q.share(
        _counted(eq("outcome", "error")).sum(*q.BY_PROCESS),
        _counted(ne("outcome", "client_error")).sum(*q.BY_PROCESS),
    )
    slow = q.known(q.request_seconds("warm").mean(*q.BY_PROCESS))
    return row(
        36,
        "Replicas",
        line(
            timeseries(
                3601,
                "Load of the busiest replicas",
                Target(load.worst(10), q.NAMED_PROCESS),
                text=(
                    "Requests of a replica as a multiple of its service's median. Far "
                    "above 1: the load balancer favours it, or pins connections."
                ),
                no_value="No requests",
            ),
            timeseries(
                3602,
                "Slowest replicas",
                Target(slow.worst(10), q.NAMED_PROCESS),
                text=(
                    "Mean latency of warm requests. One replica far above the others: "
                    "its host, its device, or its neighbours."
                ),
                no_value="No requests",
            ),
        ),
        line(
            timeseries(
                3603,
                "Replicas with most requests in progress",
                Target(in_progress.worst(10), q.NAMED_PROCESS),
                text=(
                    "One far above its peers hangs or is slow; the load balancer "
                    "should take it out."
                ),
                alerts=("JaxmonRequestsHang",),
                no_value="No requests",
            ),
            timeseries(
                3604,
                "Replicas with most errors",
                Target((failed > 0).worst(10), q.NAMED_PROCESS),
                text=(
                    "Fraction of a replica's requests that failed. One replica alone: "
                    "restart it; all of them: the input, or what they call."
                ),
                maximum=1,
                no_value="No errors",
            ),
        ),
    )


def _counted(*matchers: Matcher) -> Expr:
    return counter(catalog.REQUESTS, *matchers, *q.PROCESS).rate()
