"""
Services over weeks: quality, speed, cost and use, from recorded series.

Rates that are recorded each minute are added up over the selected time range, so
that a busy hour counts for more than a quiet one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from jaxmon.promql import Expr, Matcher, eq, ne, number, recorded
from jaxmon_alerts.overviews import accelerators, services
from jaxmon_alerts.slo import Slos
from jaxmon_alerts.slo.model import BUDGET_REMAINING, CURRENT_BURN_RATE
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, stat, table, timeseries
from jaxmon_dashboards.boards.rows import now


_ONE = number(1)
_WEEK = "1w"
_RULES = "No rules, or no requests"
_NO_PRICE = "No prices configured"


@row(50, "At a glance", lines=(8, 1))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the state of all services, and one line for each."""
    current = now.oncall(slos)
    yield stat(5001, "Success rate")(
        _success(),
        text="Fraction of requests in the selected time range that did not fail with a "
        "server error; errors of clients do not count.",
        thresholds=q.objective(slos, "request-error"),
        no_value=_RULES,
    )
    yield stat(5002, "p95, warm")(
        _quantile(0.95),
        text="p95 of warm requests in the selected time range.",
        thresholds=q.latency(slos, "warm-latency"),
        no_value=_RULES,
    )
    yield current.panel("Top burn rate")
    yield current.panel("Lowest budget")
    yield stat(5003, "Week on week")(
        _against_last_week(),
        text="Requests in the selected time range against those a week earlier; "
        "Prometheus must keep both.",
        no_value="No history",
    )
    yield stat(5004, "Run goodput")(
        _goodput(),
        text="Fraction of the wall time of training, in the selected time range, that "
        "was spent in steps.",
        no_value="No training",
    )
    yield stat(5005, "Utilization")(
        _mean(accelerators.UTILIZATION_OF_JOBS(q.JOB)).avg(),
        text="Mean utilization of accelerators over services and the selected time "
        "range. The rest is paid for, and idle.",
    )
    yield stat(5006, "Cost per hour")(
        _price().sum().of_unit("dollars"),
        text="Price of all accelerators in use, from the sidecars' price tables.",
        no_value=_NO_PRICE,
    )
    left = recorded(BUDGET_REMAINING, q.JOB).min("job")
    burning = recorded(CURRENT_BURN_RATE, q.JOB).max("job").of_unit("times")
    used = _mean(accelerators.UTILIZATION_OF_JOBS(q.JOB)).max("job")
    yield table(5007, "Services at a glance")(
        Target(_success("job"), "Success", q.objective(slos, "request-error")),
        Target(left, "Budget left", q.BUDGET_LEFT),
        Target(burning, "Burn", q.BURN),
        Target(_requests().sum("job"), "Requests"),
        Target(_against_last_week("job"), "Trend"),
        Target(_quantile(0.5, "job"), "p50"),
        Target(_quantile(0.95, "job"), "p95", q.latency(slos, "warm-latency")),
        Target(_quantile(0.99, "job"), "p99"),
        Target(_goodput("job"), "Goodput"),
        Target(used, "In use"),
        Target(_price().max("job").of_unit("dollars"), "Per hour"),
        Target(_per_requests(_total(_price()), _total(_requests())), "Per 1,000"),
        Target(_per_items(_total(_price()), _total(_items())), "Per million"),
        text="One line per service: success, latency of warm requests, goodput, use of "
        "accelerators and cost of 1,000 requests or a million items over the selected "
        "time range; requests against last week; burn, requests and price now. The "
        "name opens On-call.",
        height=9,
        labels=("job",),
        cell_links=(q.opening("job", "What is wrong with this service", "oncall"),),
        no_value="No rules",
        sort="Burn",
    )


@row(51, "Quality", lines=(3,))
def quality(slos: Slos) -> Iterator[Panel]:
    """Return success, latency and traffic over time, and last week's traffic."""
    bad = _requests(eq("outcome", "error")).sum("job")
    whole = _requests(ne("outcome", "client_error")).sum("job")
    good = _ONE - q.share(bad, whole)
    before = _requests().offset(_WEEK).sum()
    buckets = services.REQUEST_SECONDS(q.JOB, eq("start", "warm"))
    yield timeseries(5101, "Success rate by service")(
        Target(good.of_unit("ratio").least(10), "{{job}}"),
        text="Fraction of requests without a server error, of the services with the "
        "lowest; the line is the objective.",
        thresholds=q.objective(slos, "request-error"),
        alerts=q.alert_of(slos, "request-error"),
        no_value=_RULES,
    )
    yield timeseries(5102, "Latency of all services")(
        *(
            Target(_of_buckets(part, buckets), f"p{part * 100:g}")
            for part in (0.5, 0.95, 0.99)
        ),
        text="Quantiles of all warm requests. A slow rise over weeks: the traffic, the "
        "inputs, or a release.",
        thresholds=q.latency(slos, "warm-latency"),
        alerts=q.alert_of(slos, "warm-latency"),
        no_value=_RULES,
    )
    yield timeseries(5103, "Requests, this week and last")(
        Target(_requests().sum(), "now"),
        Target(before, "a week earlier"),
        text="Requests per second of all services, and at the same time of the week "
        "before. Growth is what capacity is planned for.",
        no_value=_RULES,
    )


@row(52, "Cost and use", lines=(4,))
def cost() -> Iterator[Panel]:
    """Return what results cost, and how well what is paid for is used."""
    used = accelerators.UTILIZATION_OF_JOBS(q.JOB).max("job")
    step = _time(eq("activity", "step")).sum("job")
    yield timeseries(5201, "Cost of 1,000 requests")(
        Target(_per_requests(_price(), _requests()).worst(10), "{{job}}"),
        text="Price of a service's accelerators per 1,000 requests. Falls with the "
        "load that they carry: fill batches, or run fewer replicas.",
        no_value=_NO_PRICE,
    )
    yield timeseries(5202, "Cost of a million items")(
        Target(_per_items(_price(), _items()).worst(10), "{{job}}"),
        text="Price of a service's accelerators per million tokens, images or "
        "sequences that its loops process.",
        no_value=_NO_PRICE,
    )
    yield timeseries(5203, "Accelerator use by service")(
        Target(used.least(10), "{{job}}"),
        text="Mean utilization of the accelerators of the services that use theirs "
        "least. See Accelerators for which are idle.",
        no_value="No accelerators",
    )
    yield timeseries(5204, "Goodput of services")(
        Target(q.share(step, _time().sum("job")).least(10), "{{job}}"),
        text="Fraction of the wall time of training that is spent in steps; the rest "
        "went into data, compiles, checkpoints and restarts.",
        no_value="No training",
    )


def _requests(*matchers: Matcher) -> Expr:
    return services.REQUESTS(q.JOB, *matchers)


def _success(*by: str) -> Expr:
    bad = _total(_requests(eq("outcome", "error"))).sum(*by)
    whole = _total(_requests(ne("outcome", "client_error"))).sum(*by)
    return (_ONE - q.share(bad, whole)).of_unit("ratio")


def _against_last_week(*by: str) -> Expr:
    before = _total(_requests(), back=_WEEK).sum(*by)
    return (_total(_requests()).sum(*by) / (before > 0)).of_unit("ratio")


def _quantile(part: float, *by: str) -> Expr:
    buckets = services.REQUEST_SECONDS(q.JOB, eq("start", "warm"))
    return _of_buckets(part, _total(buckets), *by)


def _of_buckets(part: float, buckets: Expr, *by: str) -> Expr:
    return q.defined(buckets.quantile(part, *by).of_unit("seconds"))


def _time(*matchers: Matcher) -> Expr:
    # Of jobs with a loop: a server may mark activities, too.
    steps = services.ACTIVITY(q.JOB, eq("activity", "step")).max("job")
    return services.ACTIVITY(q.JOB, *matchers).and_(steps, "job")


def _goodput(*by: str) -> Expr:
    every = _total(services.ACTIVITY(q.JOB))
    step = _total(services.ACTIVITY(q.JOB, eq("activity", "step")))
    loops = every.and_(step.max("job"), "job")
    return q.share(step.sum(*by), loops.sum(*by))


def _price() -> Expr:
    return accelerators.PRICE_OF_JOBS(q.JOB)


def _items() -> Expr:
    return services.ITEMS(q.JOB)


# Prices, requests and items are recorded at the same moments, so that sums over a range
# are in proportion as they are at each of these moments.


def _per_requests(price: Expr, rate: Expr) -> Expr:
    hour = rate.sum("job") * 3600
    return (price.max("job") * 1000 / (hour > 0)).of_unit("dollars")


def _per_items(price: Expr, rate: Expr) -> Expr:
    hour = rate.sum("job") * 3600
    return (price.max("job") * 1e6 / (hour > 0)).of_unit("dollars")


def _total(series: Expr, *, back: str = "") -> Expr:
    return _over("sum", series, back)


def _mean(series: Expr) -> Expr:
    return _over("avg", series)


def _over(function: Literal["avg", "sum"], series: Expr, back: str = "") -> Expr:
    earlier = f" offset {back}" if back else ""
    text = f"{function}_over_time({series.marked}[$__range]{earlier})"
    return Expr(text, shape=series.shape)
