"""Is it on fire, and since when."""

from __future__ import annotations

from jaxmon.artifacts import promql
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import (
    Link,
    Mapping,
    Panel,
    Row,
    Target,
    Thresholds,
)
from jaxmon.artifacts.promql import (
    call,
    re,
    recorded,
    time,
)
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
    return Row(1, "Is it on fire?", (*_headline(slos), *_alerts(runbooks)))


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
    return Row(
        10,
        "Error budgets",
        (
            Panel(
                id=113,
                title="Burn rate over one hour",
                kind="timeseries",
                text="How fast each error budget goes, as a multiple of the pace at "
                "which it lasts. Alerts page at 14.4 (and 6 over six hours) and file "
                "tickets at 3 and 1. Needs the recording rules of jaxmon.",
                targets=burn,
                thresholds=q.BURN,
                alerts=tuple(slo.alert for slo in slos),
            ),
            Panel(
                id=114,
                title="Error budget left",
                kind="timeseries",
                text="What is left of each error budget in its period. Below 0 the "
                "objective is missed. Needs the recording rules of jaxmon.",
                targets=left,
                # Further below, it only hides the others.
                minimum=-1,
                maximum=1,
                thresholds=q.BUDGET_LEFT,
                alerts=tuple(slo.alert for slo in slos),
            ),
        ),
    )


def _headline(slos: Slos) -> tuple[Panel, ...]:
    firing = hardware.firing(re("severity", "page|ticket"))
    burning = recorded(CURRENT_BURN_RATE, q.JOB).max().of_unit("times")
    stalled = q.above(durations.seconds(slos.thresholds.stalled_after))
    return (
        _stat(
            101,
            "Alerts that page or file a ticket, firing now. The table below names "
            "them and links their runbooks.",
            Target(firing.count().or_(_ZERO), "Firing", q.above(1)),
        ),
        _stat(
            102,
            "How fast the fastest-burning error budget goes now; at 1 it lasts "
            "exactly as long as it should. Needs the recording rules of jaxmon.",
            Target(burning, "Fastest burn", q.BURN),
        ),
        _stat(
            103,
            "What is left of the error budget that is nearest its end. Below 0 the "
            "objective is missed. Needs the recording rules of jaxmon.",
            Target(
                recorded(BUDGET_REMAINING, q.JOB).min(),
                "Least budget left",
                q.BUDGET_LEFT,
            ),
        ),
        _stat(
            104,
            "Share of requests that failed through no fault of the caller.",
            Target(
                q.share(q.failed().sum(), q.served().sum()),
                "Request errors",
                q.budget(slos, "request-error"),
            ),
        ),
        _stat(
            105,
            "Latency that 95 % of warm requests stay below; those that waited for a "
            "compile are left out.",
            Target(
                q.known(q.request_seconds("warm").quantile(0.95)),
                "Warm p95",
                q.latency(slos, "warm-latency"),
            ),
        ),
        _stat(
            106,
            "Time since the slowest running loop finished a step. When it only grows, "
            "a loop is stuck.",
            Target(q.step_age().max(), "Oldest step", stalled),
            no_value="No loop",
        ),
        _stat(
            107,
            "Calls per minute that compiled a function anew, in the process and of the "
            "function with most. A warm program has none.",
            Target(q.recompiling(), "Recompiles", q.above(q.storm(slos))),
        ),
        _stat(
            108,
            "Agents or sidecars that Prometheus cannot scrape: until they are back, "
            "every other panel is blind to them.",
            Target(
                hardware.targets().equals(0).count().or_(_ZERO),
                "Targets down",
                q.above(1),
            ),
        ),
    )


def _stat(
    number: int, text: str, target: Target, *, no_value: str = "No data"
) -> Panel:
    """Return a figure of the top line: an eighth of it, named as its query."""
    return Panel(
        id=number,
        title=target.legend,
        kind="stat",
        text=text,
        targets=(target,),
        width=3,
        height=4,
        thresholds=target.thresholds,
        no_value=no_value,
    )


def _alerts(runbooks: str) -> tuple[Panel, ...]:
    # Which of these an alert has depends on what it is about.
    identity = ("severity", "alertname", "job", *_CONCERNED)
    firing = hardware.firing()
    since = time() - hardware.firing_since().min(*identity)
    return (
        Panel(
            id=111,
            title="Firing alerts",
            kind="table",
            text="What fires, for whom, and for how long. The name opens the runbook. "
            "While JaxmonDeployInProgress is here, compile noise is muted.",
            height=7,
            width=15,
            targets=(Target(since.and_(firing.max(*identity), *identity), "For"),),
            mappings=_SEVERITIES,
            labels=identity,
            cell_links=(
                ("alertname", Link("Runbook", f"{runbooks}${{__value.text}}.md")),
            ),
            no_value="Nothing fires",
            sort="For",
        ),
        Panel(
            id=112,
            title="Alerts over time",
            kind="state-timeline",
            text="When each alert fired. What began first is often the cause of the "
            "rest.",
            height=7,
            width=9,
            targets=(Target(firing.max("alertname", "job"), "{{alertname}} {{job}}"),),
            mappings=(Mapping("1", "firing", "red"),),
            thresholds=Thresholds("red", ()),
            no_value="Nothing fired",
        ),
    )
