"""Current status panels."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.host.formats import durations
from jaxmon.promql import Expr, alerts_since, re, recorded, time
from jaxmon_alerts.overviews import services
from jaxmon_alerts.overviews.accelerators import FIRING
from jaxmon_alerts.slo import Slos
from jaxmon_alerts.slo.model import BUDGET_REMAINING, CURRENT_BURN_RATE
from jaxmon_dashboards.boards import hardware
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
    firing = hardware.firing(re("severity", "page|ticket")).max(*ALERT)
    burning = recorded(CURRENT_BURN_RATE, q.JOB).max().of_unit("times")
    stalled = q.above(durations.seconds(slos.limits.stalled_after))
    yield stat(101, "Firing")(
        q.or_zero(firing.count()),
        text="Number of firing pages and tickets. The table below lists them with "
        "their runbooks.",
        thresholds=q.above(1),
    )
    yield stat(102, "Top burn rate")(
        burning,
        text="Burn rate of the fastest-burning error budget; 1 uses it up exactly over "
        "the period.",
        thresholds=q.BURN,
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
        thresholds=stalled,
    )
    yield stat(107, "Recompiles")(
        q.recompiling(),
        text="Recompiles per minute of the worst function and process. A warm program "
        "has none.",
        thresholds=q.above(q.storm(slos)),
    )
    yield stat(108, "Targets down")(
        q.or_zero(hardware.down().count()),
        text="Agents or sidecars that Prometheus cannot scrape; no other panel "
        "includes them.",
        thresholds=q.above(1),
    )
    firing, named = hardware.firing(), ("alertname", "job")
    duration = time() - _named(alerts_since(FIRING[0])).min(*_LISTED)
    every = duration.and_(_named(firing).max(*_LISTED), *_LISTED)
    # No flood of tickets hides a page; the stat above counts all.
    shown = every.bottomk(_ALERTS, "severity")
    of_services, of_hardware = (
        series.max(*named).topk(_ROWS) for series in hardware.fired()
    )
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
    burn = tuple(
        Target(
            (slo.recording("1h", q.JOB).max("job") / slo.budget)
            .of_unit("times")
            .worst(_SERVICES),
            f"{slo.title} {{{{job}}}}",
        )
        for slo in slos
    )
    left = tuple(
        Target(
            slo.recorded(BUDGET_REMAINING, q.JOB).min("job").least(_SERVICES),
            f"{slo.title} {{{{job}}}}",
        )
        for slo in slos
    )
    yield timeseries(113, "Burn rate over one hour")(
        *burn,
        text=f"Burn rate of error budgets, of each objective the {_SERVICES} services "
        "that burn fastest; 1 uses it up exactly over the period. Alerts page at 14.4 "
        "(and at 6 over six hours) and file tickets at 3 and 1.",
        thresholds=q.BURN,
        alerts=tuple(slo.alert for slo in slos),
    )
    yield timeseries(114, "Error budget remaining")(
        *left,
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
