"""Services: now, their budgets, and over weeks; from recorded series."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from jaxmon.promql import (
    Expr,
    Matcher,
    alerts,
    alerts_since,
    eq,
    ne,
    number,
    re,
    recorded,
    time,
    up,
)
from jaxmon_alerts.overviews import hosts, services
from jaxmon_alerts.overviews.hosts import FIRING
from jaxmon_alerts.slo import Slos
from jaxmon_alerts.slo.model import BUDGET_REMAINING, CURRENT_BURN_RATE
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Link,
    Mapping,
    Panel,
    Target,
    Thresholds,
    row,
    stat,
    states,
    table,
    timeseries,
)


ALERT = ("severity", "alertname", "job", "route", "function", "loop", "instance")
"""Labels of what counts as one alert, which may fire with several windows."""

_LISTED = ("severity", "alertname", "job", "subject", "instance")
# Of each objective, of which there are five.
_SERVICES = 10
# As many as have room for their names.
_ROWS = 10
# Of each severity, of which there are three; a table of a hundred is more than anyone
# reads.
_ALERTS = 33
_SEVERITIES = (
    Mapping("page", "page", "red"),
    Mapping("ticket", "ticket", "orange"),
    Mapping("info", "info", "blue"),
)


@row(1, "Current status", lines=(8, 2))
def oncall(slos: Slos, runbooks: str = "") -> Iterator[Panel]:
    """Return the headline panels."""
    firing = q.firing(re("severity", "page|ticket")).max(*ALERT)
    yield stat(101, "Firing")(
        q.or_zero(firing.count()),
        text="Number of firing pages and tickets. The table below lists them with "
        "their runbooks.",
        thresholds=q.above(1),
    )
    yield stat(102, "Top burn rate")(
        recorded(CURRENT_BURN_RATE, q.JOB).max().of_unit("times"),
        text="Burn rate of the fastest-burning error budget; 1 uses it up exactly over "
        "the period.",
        thresholds=q.burn(slos),
    )
    yield stat(103, "Lowest budget")(
        recorded(BUDGET_REMAINING, q.JOB).min(),
        text="Remaining budget of the objective closest to exhausting it. Below 0 the "
        "objective is missed.",
        thresholds=q.BUDGET_LEFT,
    )
    yield stat(104, "Request errors")(
        q.share(q.failed(), q.served()),
        text="Fraction of requests that failed with a server error.",
        thresholds=q.budget(slos, "request-error"),
    )
    yield stat(105, "Warm p95")(
        q.latency_of("warm", 0.95),
        text="p95 latency of warm requests, excluding those that waited for a compile.",
        thresholds=q.latency(slos, "warm-latency"),
    )
    yield stat(106, "Oldest step")(
        services.STEP_AGE(q.JOB).max(),
        text="Time since the slowest running loop finished a step. If it keeps "
        "growing, a loop is stuck.",
        thresholds=q.above(slos.limits.stalled_after),
    )
    yield stat(107, "Recompiles")(
        q.recompiling(),
        text="Recompiles per minute of the worst function and process. A warm program "
        "has none.",
        thresholds=q.above(q.storm(slos)),
    )
    yield stat(108, "Targets down")(
        q.or_zero(q.down().count()),
        text="Agents or sidecars that Prometheus cannot scrape; no other panel "
        "includes them.",
        thresholds=q.above(1),
    )
    firing, named = q.firing(), ("alertname", "job")
    duration = time() - _named(alerts_since(FIRING[0])).min(*_LISTED)
    every = duration.and_(_named(firing).max(*_LISTED), *_LISTED)
    # No flood of tickets hides a page; the stat above counts all.
    shown = every.bottomk(_ALERTS, "severity")
    of_services, of_hardware = (series.max(*named).topk(_ROWS) for series in q.fired())
    longest = of_services.or_(of_hardware)
    yield table(111, "Firing alerts")(
        Target(shown, "For"),
        text=f"Firing alerts, their subject and duration: the latest {_ALERTS} of each "
        "severity. The name links to the runbook. While JaxmonDeployInProgress is "
        "listed, compile tickets are inhibited.",
        height=7,
        width=15,
        mappings=_SEVERITIES,
        labels=_LISTED,
        values_after="alertname",
        cell_links=(("alertname", Link("Runbook", f"{runbooks}${{__value.text}}.md")),),
        no_value="No firing alerts",
        sort="For",
    )
    yield states(112, "Alerts over time")(
        Target(firing.max(*named).and_(longest), "{{alertname}} {{job}}"),
        text="When each alert fired, of the ten that fired for longest, and the ten "
        "about hardware. The first is often the cause of the others.",
        mappings=(Mapping("1", "firing", "red"),),
        thresholds=Thresholds("red", ()),
        no_value="No alerts",
    )


@row(10, "Error budgets", lines=(2,))
def budgets(slos: Slos) -> Iterator[Panel]:
    """Return how fast error budgets burn, and how much is left."""
    least = ", ".join(
        f"a {severity} from {rate:g} on"
        for severity, rate in q.burn_rates(slos).items()
    )
    yield timeseries(113, "Burn rate over one hour")(
        *tuple(
            Target(
                (slo.recording("1h", q.JOB).max("job") / slo.budget)
                .of_unit("times")
                .worst(_SERVICES),
                f"{slo.title} {{{{job}}}}",
            )
            for slo in slos
        ),
        text=f"Burn rate of error budgets, of each objective the {_SERVICES} services "
        "that burn fastest; 1 uses it up exactly over the period. "
        f"Alerts, if it lasts: {least or 'none'}.",
        thresholds=q.burn(slos),
        alerts=tuple(slo.alert for slo in slos),
    )
    yield timeseries(114, "Error budget remaining")(
        *tuple(
            Target(
                slo.recorded(BUDGET_REMAINING, q.JOB).min("job").least(_SERVICES),
                f"{slo.title} {{{{job}}}}",
            )
            for slo in slos
        ),
        text="Remaining error budget of each objective in its period, of the "
        f"{_SERVICES} services with the least. Below 0 the objective is missed.",
        # Further below, it only hides the others.
        minimum=-1,
        thresholds=q.BUDGET_LEFT,
        alerts=tuple(slo.alert for slo in slos),
    )


def _named(series: Expr) -> Expr:
    """Return alerts with what they are about, which has one of these labels."""
    for label in ("route", "function", "loop"):
        series = series.relabelled("subject", label)
    return series


@row(2, "By service", lines=(1,))
def listed(slos: Slos) -> Iterator[Panel]:
    """Return one line for each service, coloured as its objectives."""
    every = services.REQUESTS(q.JOB).sum("job")
    firing = alerts(q.JOB, *FIRING, re("severity", "page|ticket")).max(*ALERT)
    burning = recorded(CURRENT_BURN_RATE, q.JOB).max("job").of_unit("times")
    columns = (
        Target(firing.count("job"), "Alerts", q.above(1)),
        Target(burning, "Burn", q.burn(slos)),
        Target(every, "Requests"),
        Target(
            q.share(q.failed("job"), q.served("job")),
            "Errors",
            q.budget(slos, "request-error"),
        ),
        Target(
            q.latency_of("warm", 0.95, "job"),
            "Warm p95",
            q.latency(slos, "warm-latency"),
        ),
        Target(q.share(q.cold("job"), every), "Cold", q.budget(slos, "cold-start")),
        Target(services.STEPS(q.JOB).sum("job"), "Steps"),
        Target(
            services.STEP_AGE(q.JOB).max("job"),
            "Oldest step",
            q.above(slos.limits.stalled_after),
        ),
        Target(services.CALLS(q.JOB).sum("job"), "Calls"),
        Target(q.hit_rate("job"), "Cache hits", q.objective(slos, "cache-hit-rate")),
        Target(q.recompiling("job"), "Recompiles", q.above(q.storm(slos))),
        Target(up(q.JOB).avg("job").of_unit("ratio"), "Targets up", q.below(1)),
    )
    yield table(121, "Services")(
        *columns,
        text="One row per service, coloured by its objectives. The name links to the "
        "Debug dashboard.",
        height=6,
        cell_links=(q.opening("job", "Debug this service", "debug"),),
        sort="Burn",
    )


_ONE = number(1)
_WEEK = "1w"
_RULES = "No rules, or no requests"
_NO_PRICE = "No prices configured"


@row(50, "At a glance", lines=(8, 1))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the state of all services, and one line for each."""
    current = oncall(slos)
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
        _mean(hosts.UTILIZATION_OF_JOBS(q.JOB)).avg(),
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
    yield table(5007, "Services at a glance")(
        Target(_success("job"), "Success", q.objective(slos, "request-error")),
        Target(left, "Budget left", q.BUDGET_LEFT),
        Target(burning, "Burn", q.burn(slos)),
        Target(_requests().sum("job"), "Requests"),
        Target(_against_last_week("job"), "Trend"),
        Target(_quantile(0.5, "job"), "p50"),
        Target(_quantile(0.95, "job"), "p95", q.latency(slos, "warm-latency")),
        Target(_quantile(0.99, "job"), "p99"),
        Target(_goodput("job"), "Goodput"),
        Target(_mean(hosts.UTILIZATION_OF_JOBS(q.JOB)).max("job"), "In use"),
        Target(_price().max("job").of_unit("dollars"), "Per hour"),
        Target(_per_requests(_total(_price()), _total(_requests())), "Per 1,000"),
        Target(_per_items(_total(_price()), _total(_items())), "Per million"),
        text="One line per service: success, latency of warm requests, goodput, use of "
        "accelerators and cost of 1,000 requests or a million items over the selected "
        "time range; requests against last week; burn, requests and price now. The "
        "name opens On-call.",
        height=9,
        cell_links=(q.opening("job", "What is wrong with this service", "oncall"),),
        no_value="No rules",
        sort="Burn",
    )


@row(51, "Quality", lines=(3,))
def quality(slos: Slos) -> Iterator[Panel]:
    """Return success, latency and traffic over time, and last week's traffic."""
    whole = _requests(ne("outcome", "client_error")).sum("job")
    good = _ONE - q.share(_requests(eq("outcome", "error")).sum("job"), whole)
    buckets = services.REQUEST_SECONDS(q.JOB, eq("start", "warm"))
    yield timeseries(5101, "Success rate by service")(
        good.of_unit("ratio").least(10),
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
        Target(_requests().offset(_WEEK).sum(), "a week earlier"),
        text="Requests per second of all services, and at the same time of the week "
        "before. Growth is what capacity is planned for.",
        no_value=_RULES,
    )


@row(52, "Cost and use", lines=(4,))
def cost() -> Iterator[Panel]:
    """Return what results cost, and how well what is paid for is used."""
    yield timeseries(5201, "Cost of 1,000 requests")(
        _per_requests(_price(), _requests()).worst(10),
        text="Price of a service's accelerators per 1,000 requests. Falls with the "
        "load that they carry: fill batches, or run fewer replicas.",
        no_value=_NO_PRICE,
    )
    yield timeseries(5202, "Cost of a million items")(
        _per_items(_price(), _items()).worst(10),
        text="Price of a service's accelerators per million tokens, images or "
        "sequences that its loops process.",
        no_value=_NO_PRICE,
    )
    yield timeseries(5203, "Accelerator use by service")(
        hosts.UTILIZATION_OF_JOBS(q.JOB).max("job").least(10),
        text="Mean utilization of the accelerators of the services that use theirs "
        "least. See Accelerators for which are idle.",
        no_value="No accelerators",
    )
    yield timeseries(5204, "Goodput of services")(
        q.share(_time(eq("activity", "step")).sum("job"), _time().sum("job")).least(10),
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
    step = _total(services.ACTIVITY(q.JOB, eq("activity", "step")))
    loops = _total(services.ACTIVITY(q.JOB)).and_(step.max("job"), "job")
    return q.share(step.sum(*by), loops.sum(*by))


def _price() -> Expr:
    return hosts.PRICE_OF_JOBS(q.JOB)


def _items() -> Expr:
    return services.ITEMS(q.JOB)


# Prices, requests and items are recorded at the same moments, so that sums over a range
# are in proportion as they are at each of these moments.


def _per_requests(price: Expr, rate: Expr) -> Expr:
    return (price.max("job") * 1000 / ((rate.sum("job") * 3600) > 0)).of_unit("dollars")


def _per_items(price: Expr, rate: Expr) -> Expr:
    return (price.max("job") * 1e6 / ((rate.sum("job") * 3600) > 0)).of_unit("dollars")


def _total(series: Expr, *, back: str = "") -> Expr:
    return _over("sum", series, back)


def _mean(series: Expr) -> Expr:
    return _over("avg", series)


def _over(function: Literal["avg", "sum"], series: Expr, back: str = "") -> Expr:
    earlier = f" offset {back}" if back else ""
    text = f"{function}_over_time({series.marked}[$__range]{earlier})"
    return Expr(text, shape=series.shape)
