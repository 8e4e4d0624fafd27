"""Service overview."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, table
from jaxmon.artifacts.dashboards.model import Link, Row, Target
from jaxmon.artifacts.promql import alerts, counter, ne, re, recorded, up
from jaxmon.artifacts.slo import Slos, durations
from jaxmon.artifacts.slo.model import CURRENT_BURN_RATE


_DEBUG = Link(
    "Debug this service",
    "/d/jaxmon-debug?var-job=${__value.text}"
    "&${datasource:queryparam}&${__url_time_range}",
)


def oncall(slos: Slos) -> Row:
    """Return one line for each service, coloured as its objectives."""
    calls = counter(catalog.JIT_CALLS, *q.FUNCTION).rate().sum("job")
    waiting = counter(catalog.REQUESTS, ne("start", "warm"), *q.PROCESS)
    every = counter(catalog.REQUESTS, *q.PROCESS).rate().sum("job")
    firing = alerts(q.JOB, *q.FIRING, re("severity", "page|ticket")).count("job")
    burning = recorded(CURRENT_BURN_RATE, q.JOB).max("job").of_unit("times")
    columns = (
        Target(firing, "Alerts", q.above(1)),
        Target(burning, "Burn", q.BURN),
        Target(every, "Requests"),
        Target(
            q.share(q.failed().sum("job"), q.served().sum("job")),
            "Errors",
            q.budget(slos, "request-error"),
        ),
        Target(
            q.known(q.request_seconds("warm").quantile(0.95, "job")),
            "Warm p95",
            q.latency(slos, "warm-latency"),
        ),
        Target(
            q.share(waiting.rate().sum("job"), every),
            "Cold",
            q.budget(slos, "cold-start"),
        ),
        Target(counter(catalog.STEPS, *q.PROCESS).rate().sum("job"), "Steps"),
        Target(
            q.step_age().max("job"),
            "Oldest step",
            q.above(durations.seconds(slos.thresholds.stalled_after)),
        ),
        Target(calls, "Calls"),
        Target(q.hit_rate("job"), "Cache hits", q.objective(slos, "cache-hit-rate")),
        Target(q.recompiling("job"), "Recompiles", q.above(q.storm(slos))),
        Target(up(*q.HOST).avg("job").of_unit("ratio"), "Targets up", q.below(1)),
    )
    return row(
        2,
        "By service",
        line(
            table(
                121,
                "Services",
                *columns,
                text=(
                    "One row per service, coloured by its objectives. The name links "
                    "to the Debug dashboard."
                ),
                labels=("job",),
                cell_links=(("job", _DEBUG),),
                sort="Burn",
            ),
            height=6,
        ),
    )
