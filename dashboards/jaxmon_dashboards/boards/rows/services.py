"""Services: now, their budgets, and over weeks; from recorded series."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import promql
from jaxmon_alerts.overviews import hosts, services
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


_LISTED = ("severity", "alertname", "job", "subject", "instance", "uuid")

# Of each severity, of which there are three; a table of a hundred is more than anyone
# reads.
_ALERTS = 33
# As many as have room for their names.
_ROWS = 10
_SEVERITIES = (
    Mapping("page", "page", "red"),
    Mapping("ticket", "ticket", "orange"),
    Mapping("info", "info", "blue"),
)
_WORTH = promql.re("severity", "page|ticket")
_NO_RULES = "No rules loaded"


@row(1, "Now", lines=(8, 2))
def oncall(slos: Slos, runbooks: str = "") -> Iterator[Panel]:
    """Return how many users suffer, and what fires since when."""
    loaded = hosts.firing(promql.eq("alertname", "JaxmonWatchdog"))
    gpus, machines = q.about_hardware()
    yield stat(101, "Firing")(
        q.or_zero(hosts.firing(q.JOB, _WORTH).count(), loaded),
        text="Firing pages and tickets. The table below lists them with their "
        "runbooks.",
        thresholds=q.above(1),
        no_value=_NO_RULES,
    )
    yield stat(109, "Hardware")(
        Target(q.or_zero(gpus.count(), hosts.OWNED()), "GPUs"),
        Target(machines.count(), "hosts"),
        text="Firing alerts about the GPUs that the services use, and about the hosts "
        "that read them, whichever job reports them; the row Hardware has them.",
        thresholds=q.above(1),
        no_value="No GPUs",
    )
    yield stat(115, "Requests now")(
        services.SERVED(q.JOB).sum(),
        text="Requests per second within five minutes, without errors of clients. If "
        "there are none, look at the oldest request.",
        no_value="No requests",
    )
    yield stat(104, "Request errors")(
        q.failing(slos).max().or_(services.FAILING(q.JOB).max()),
        text="Fraction of requests of the worst route within five minutes that failed "
        "with a server error, or whose callers waited long and left.",
        thresholds=q.budget(slos, "request-error"),
        no_value="No requests",
    )
    left = q.gave_up(slos)
    if left is not None:
        yield stat(110, "Gave up")(
            left,
            text="Fraction of requests within five minutes whose callers waited long "
            "and left. They count as errors, too.",
            thresholds=q.budget(slos, "request-error"),
            no_value="None",
        )
    else:
        yield stat(107, "Recompiles")(
            q.recompiling(),
            text="Recompiles per minute of the worst function and process. A warm "
            "program has none.",
            thresholds=q.above(q.storm(slos)),
        )
    yield stat(105, "p95 now")(
        q.latency_of(0.95),
        text="p95 latency of all successful requests within five minutes, those that "
        "waited for a compile included.",
        thresholds=q.latency(slos, "warm-latency"),
        no_value="No requests",
    )
    yield stat(116, "Oldest request")(
        services.REQUEST_OLDEST(q.JOB).max(),
        text="Age of the oldest request in progress. If it keeps growing, it hangs; "
        "nothing else here counts it before it ends.",
        thresholds=q.above(slos.limits.hang_after),
        no_value="No requests",
    )
    yield stat(106, "Oldest step")(
        services.STEP_AGE(q.JOB).max(),
        text="Time since the slowest running loop finished a step. If it keeps "
        "growing, a loop is stuck.",
        thresholds=q.above(slos.limits.stalled_after),
    )
    firing = hosts.firing(q.JOB)
    longest = firing.over_range("count").topk(_ROWS)
    yield table(111, "Firing alerts")(
        # No flood of tickets hides a page; the figure above counts all.
        Target((promql.time() - firing).bottomk(_ALERTS, "severity"), "For"),
        text="Firing alerts, pages first, their subject, and for how long, pending "
        f"included: the latest {_ALERTS} of each severity. The name links to the "
        "runbook. While JaxmonDeployInProgress is listed, compile tickets are "
        "inhibited.",
        height=7,
        width=15,
        mappings=_SEVERITIES,
        labels=_LISTED,
        values_after="alertname",
        cell_links=(("alertname", Link("Runbook", f"{runbooks}${{__value.text}}.md")),),
        no_value="No firing alerts",
        sort="Severity",
    )
    yield states(112, "Alerts over time")(
        Target(firing.above(0).and_(longest), "{{job}} {{subject}} {{alertname}}"),
        # The end of a name that does not fit is shown.
        text="When each alert fired, of the ten that fired for longest. The first is "
        "often the cause of the others.",
        mappings=(Mapping("1", "firing", "red"),),
        thresholds=Thresholds("red", ()),
        no_value="No alerts",
    )


@row(10, "Error budgets", lines=(2,), no_value="No events")
def budgets(slos: Slos) -> Iterator[Panel]:
    """Return how fast error budgets burn, and how much is left."""
    of_alerts = tuple(slo.alert for slo in slos)
    least = ", ".join(
        f"a {severity} from {rate:g} on"
        for severity, rate in q.burn_rates(slos).items()
    )
    legend = "{{sloth_slo}} {{job}}"
    yield timeseries(113, "Burn rate")(
        Target(_of_objectives(CURRENT_BURN_RATE, "times").worst(q.FEW), legend),
        text=f"Burn rate of error budgets within five minutes, the {q.FEW} fastest; 1 "
        "uses one up exactly over the period. "
        f"Alerts, if it lasts: {least or 'none'}.",
        thresholds=q.burn(slos),
        alerts=of_alerts,
    )
    yield timeseries(114, "Error budget remaining")(
        Target(_of_objectives(BUDGET_REMAINING, "ratio").least(q.FEW), legend),
        text=f"Remaining error budget in its period, the {q.FEW} least. Below 0 the "
        "objective is missed.",
        # Further below, it only hides the others.
        minimum=-1,
        thresholds=q.BUDGET_LEFT,
        alerts=of_alerts,
    )


def _of_objectives(name: str, unit: str) -> promql.Expr:
    labels = ("sloth_slo", "job", "route", "loop")
    return promql.recorded(name, q.JOB, labels=labels, unit=unit)


@row(2, "By service", lines=(1,))
def listed(slos: Slos) -> Iterator[Panel]:
    """Return one line for each service, coloured as its objectives."""
    late = q.above(slos.limits.stalled_after)
    firing = hosts.firing(q.JOB, _WORTH).count("job")
    burning = promql.recorded(CURRENT_BURN_RATE, q.JOB).max("job").of_unit("times")
    left = promql.recorded(BUDGET_REMAINING, q.JOB).min("job")
    error, start = (q.budget(slos, name) for name in ("request-error", "cold-start"))
    yield table(121, "Services")(
        Target(firing, "Alerts", q.above(1)),
        Target(burning, "Burn", q.burn(slos)),
        Target(left, "Budget left", q.BUDGET_LEFT),
        Target(services.REQUESTS(q.JOB).sum("job"), "Requests"),
        Target(q.failing(slos).max("job"), "Errors", error),
        Target(q.latency_of(0.95, "job"), "p95", q.latency(slos, "warm-latency")),
        Target(q.cold(slos).max("job"), "Cold", start),
        Target(services.STEPS(q.JOB).sum("job"), "Steps"),
        Target(services.STEP_AGE(q.JOB).max("job"), "Oldest step", late),
        Target(q.recompiling("job"), "Recompiles", q.above(q.storm(slos))),
        Target(promql.up(q.JOB).avg("job").of_unit("ratio"), "Targets up", q.below(1)),
        text="One row per service, coloured by its objectives. Errors, with callers "
        "who waited long and left, and requests that waited for a compile are those of "
        "its worst route; p95 is that of all. The name links to the Debug dashboard.",
        height=6,
        cell_links=(q.opening("job", "Debug this service", "debug"),),
        no_value="No services",
        sort="Burn",
    )


_ONE = promql.number(1)
_WEEK = "1w"
_RULES = "No rules, or no requests"
_NO_PRICE = "No prices configured"


@row(50, "At a glance", lines=(8, 1))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the state of all services, and one line for each."""
    current = oncall(slos)
    latency = q.latency(slos, "warm-latency")
    yield stat(5001, "Success rate")(
        (_ONE - _total(services.FAILED(q.JOB)).sum() / _total(_served()).sum()).of_unit(
            "ratio"
        ),
        text="Fraction of requests in the selected time range that did not fail with a "
        "server error; errors of clients do not count.",
        thresholds=q.objective(slos, "request-error"),
        no_value=_RULES,
    )
    yield stat(5002, "p95")(
        _quantile(0.95),
        text="p95 of all successful requests in the selected time range, those that "
        "waited for a compile included.",
        thresholds=latency,
        no_value=_RULES,
    )
    yield stat(102, "Top burn rate")(
        promql.recorded(CURRENT_BURN_RATE, q.JOB).max().of_unit("times"),
        text="Burn rate of the fastest-burning error budget; 1 uses it up exactly over "
        "the period.",
        thresholds=q.burn(slos),
        no_value="No events",
    )
    yield current.panel("Requests now")
    yield current.panel("Oldest request")
    yield stat(103, "Lowest budget")(
        promql.recorded(BUDGET_REMAINING, q.JOB).min(),
        text="Remaining budget of the objective closest to exhausting it. Below 0 the "
        "objective is missed.",
        thresholds=q.BUDGET_LEFT,
        no_value="No events",
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
    left = promql.recorded(BUDGET_REMAINING, q.JOB).min("job")
    burning = promql.recorded(CURRENT_BURN_RATE, q.JOB).max("job").of_unit("times")
    success = _ONE - _total(services.FAILED(q.JOB)) / _total(_served())
    before = _total(_served(), back=_WEEK)
    yield table(5007, "Services at a glance")(
        Target(success.of_unit("ratio"), "Success", q.objective(slos, "request-error")),
        Target(left, "Budget left", q.BUDGET_LEFT),
        Target(burning, "Burn", q.burn(slos)),
        Target(_served().max("job"), "Requests"),
        Target((_total(_served()) / (before > 0)).of_unit("ratio"), "Trend"),
        Target(_quantile(0.5, "job"), "p50"),
        Target(_quantile(0.95, "job"), "p95", latency),
        Target(_quantile(0.99, "job"), "p99"),
        Target(_mean(services.GOODPUT(q.JOB)), "Goodput"),
        Target(_mean(hosts.UTILIZATION_OF_JOBS(q.JOB)), "In use"),
        Target(_price().max("job").of_unit("dollars"), "Per hour"),
        Target(hosts.PRICE_OF_REQUESTS(q.JOB).max("job"), "Per 1,000"),
        Target(hosts.PRICE_OF_ITEMS(q.JOB).max("job"), "Per million"),
        text="One line per service: success, latency of requests, mean goodput and use "
        "of accelerators over the selected time range; requests against last week; "
        "burn, requests, price, and cost of 1,000 requests or a million items now. "
        "The name opens On-call.",
        height=9,
        cell_links=(q.opening("job", "What is wrong with this service", "oncall"),),
        no_value="No services",
        sort="Burn",
    )


@row(51, "Quality", lines=(3,), no_value=_RULES)
def quality(slos: Slos) -> Iterator[Panel]:
    """Return success, latency and traffic over time, and last week's traffic."""
    yield timeseries(5101, "Error rate by service")(
        services.FAILING(q.JOB).worst(10),
        text="Fraction of requests with a server error, of the services with the "
        "most; the line is the objective.",
        thresholds=q.budget(slos, "request-error"),
        alerts=q.alert_of(slos, "request-error"),
    )
    yield timeseries(5102, "Latency of all services")(
        *(Target(q.latency_of(part), f"p{part * 100:g}") for part in (0.5, 0.95, 0.99)),
        text="Quantiles of all successful requests. A slow rise over weeks: the "
        "traffic, the inputs, or a release.",
        thresholds=q.latency(slos, "warm-latency"),
        alerts=q.alert_of(slos, "warm-latency"),
    )
    yield timeseries(5103, "Requests, this week and last")(
        Target(_served().sum(), "now"),
        Target(_served().offset(_WEEK).sum(), "a week earlier"),
        text="Requests per second of all services, and at the same time of the week "
        "before. Growth is what capacity is planned for.",
    )


@row(52, "Cost and use", lines=(3,), no_value=_NO_PRICE)
def cost() -> Iterator[Panel]:
    """Return what results cost, and how well what is paid for is used."""
    yield timeseries(5201, "Cost of 1,000 requests")(
        hosts.PRICE_OF_REQUESTS(q.JOB).worst(10),
        text="Price of a service's accelerators per 1,000 requests. Falls with the "
        "load that they carry: fill batches, or run fewer replicas.",
    )
    yield timeseries(5202, "Cost of a million items")(
        hosts.PRICE_OF_ITEMS(q.JOB).worst(10),
        text="Price of a service's accelerators per million tokens, images or "
        "sequences that its loops process.",
    )
    yield timeseries(5204, "Goodput of services")(
        services.GOODPUT(q.JOB).least(10),
        text="Fraction of the wall time of training that is spent in steps; the rest "
        "went into data, compiles, checkpoints and restarts.",
        no_value="No training",
    )


def _served() -> promql.Expr:
    return services.SERVED(q.JOB)


def _quantile(part: float, *by: str) -> promql.Expr:
    buckets = _total(services.REQUEST_SECONDS(q.JOB))
    return q.defined(buckets.quantile(part, *by).of_unit("seconds"))


def _price() -> promql.Expr:
    return hosts.PRICE_OF_JOBS(q.JOB)


def _total(series: promql.Expr, *, back: str = "") -> promql.Expr:
    return promql.recorded_over("sum", series, "$__range", back=back)


def _mean(series: promql.Expr) -> promql.Expr:
    return promql.recorded_over("avg", series, "$__range")
