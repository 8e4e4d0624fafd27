"""Is it on fire, and since when."""

from __future__ import annotations

from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, stat, states, table, timeseries
from jaxmon.artifacts.dashboards.model import (
    Line,
    Link,
    Mapping,
    Row,
    Target,
    Thresholds,
)
from jaxmon.artifacts.promql import call, re, recorded, time
from jaxmon.artifacts.slo import Slos, durations
from jaxmon.artifacts.slo.model import BUDGET_REMAINING, CURRENT_BURN_RATE


_ZERO = call("vector", promql.number(0))
_CONCERNED = ("route", "function", "loop", "instance")
_SEVERITIES = (
    Mapping("page", "page", "red"),
    Mapping("ticket", "ticket", "orange"),
    Mapping("info", "info", "blue"),
)


def oncall(slos: Slos, runbooks: str) -> Row:
    """Return what an alarmed reader looks at first."""
    return row(1, "Is it on fire?", _headline(slos), _alerts(runbooks))


def budgets(slos: Slos) -> Row:
    """Return how fast error budgets go, and what is left of them."""
    burn = tuple(
        Target(
            (slo.recording("1h", q.JOB).max("job") / slo.budget).of_unit("times"),
            f"{slo.title} {{{{job}}}}",
        )
        for slo in slos
    )
    left = tuple(
        Target(
            slo.recorded(BUDGET_REMAINING, q.JOB).min("job"), f"{slo.title} {{{{job}}}}"
        )
        for slo in slos
    )
    return row(
        10,
        "Error budgets",
        line(
            timeseries(
                113,
                "Burn rate over one hour",
                *burn,
                text="How fast each error budget goes, as a multiple of the pace at "
                "which it lasts. Alerts page at 14.4 (and 6 over six hours) and file "
                "tickets at 3 and 1. Needs the recording rules of jaxmon.",
                thresholds=q.BURN,
                alerts=tuple(slo.alert for slo in slos),
            ),
            timeseries(
                114,
                "Error budget left",
                *left,
                text="What is left of each error budget in its period. Below 0 the "
                "objective is missed. Needs the recording rules of jaxmon.",
                # Further below, it only hides the others.
                minimum=-1,
                maximum=1,
                thresholds=q.BUDGET_LEFT,
                alerts=tuple(slo.alert for slo in slos),
            ),
        ),
    )


def _headline(slos: Slos) -> Line:
    firing = hardware.firing(re("severity", "page|ticket"))
    burning = recorded(CURRENT_BURN_RATE, q.JOB).max().of_unit("times")
    stalled = q.above(durations.seconds(slos.thresholds.stalled_after))
    return line(
        stat(
            101,
            Target(firing.count().or_(_ZERO), "Firing", q.above(1)),
            text="Alerts that page or file a ticket, firing now. The table below names "
            "them and links their runbooks.",
        ),
        stat(
            102,
            Target(burning, "Fastest burn", q.BURN),
            text="How fast the fastest-burning error budget goes now; at 1 it lasts "
            "exactly as long as it should. Needs the recording rules of jaxmon.",
        ),
        stat(
            103,
            Target(
                recorded(BUDGET_REMAINING, q.JOB).min(),
                "Least budget left",
                q.BUDGET_LEFT,
            ),
            text="What is left of the error budget that is nearest its end. Below 0 "
            "the objective is missed. Needs the recording rules of jaxmon.",
        ),
        stat(
            104,
            Target(
                q.share(q.failed().sum(), q.served().sum()),
                "Request errors",
                q.budget(slos, "request-error"),
            ),
            text="Share of requests that failed through no fault of the caller.",
        ),
        stat(
            105,
            Target(
                q.known(q.request_seconds("warm").quantile(0.95)),
                "Warm p95",
                q.latency(slos, "warm-latency"),
            ),
            text="Latency that 95 % of warm requests stay below; those that waited for "
            "a compile are left out.",
        ),
        stat(
            106,
            Target(q.step_age().max(), "Oldest step", stalled),
            text="Time since the slowest running loop finished a step. When it only "
            "grows, a loop is stuck.",
            no_value="No loop",
        ),
        stat(
            107,
            Target(q.recompiling(), "Recompiles", q.above(q.storm(slos))),
            text="Calls per minute that compiled a function anew, in the process and "
            "of the function with most. A warm program has none.",
        ),
        stat(
            108,
            Target(
                hardware.targets().equals(0).count().or_(_ZERO),
                "Targets down",
                q.above(1),
            ),
            text="Agents or sidecars that Prometheus cannot scrape: until they are "
            "back, every other panel is blind to them.",
        ),
        height=4,
    )


def _alerts(runbooks: str) -> Line:
    # Which of these an alert has depends on what it is about.
    identity = ("severity", "alertname", "job", *_CONCERNED)
    firing = hardware.firing()
    since = time() - hardware.firing_since().min(*identity)
    return line(
        table(
            111,
            "Firing alerts",
            Target(since.and_(firing.max(*identity), *identity), "For"),
            text="What fires, for whom, and for how long. The name opens the runbook. "
            "While JaxmonDeployInProgress is here, compile noise is muted.",
            width=15,
            mappings=_SEVERITIES,
            labels=identity,
            cell_links=(
                ("alertname", Link("Runbook", f"{runbooks}${{__value.text}}.md")),
            ),
            no_value="Nothing fires",
            sort="For",
        ),
        states(
            112,
            "Alerts over time",
            Target(firing.max("alertname", "job"), "{{alertname}} {{job}}"),
            text="When each alert fired. What began first is often the cause of the "
            "rest.",
            mappings=(Mapping("1", "firing", "red"),),
            thresholds=Thresholds("red", ()),
            no_value="Nothing fired",
        ),
        height=7,
    )
