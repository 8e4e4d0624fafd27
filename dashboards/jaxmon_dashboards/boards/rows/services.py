"""Service overview."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.host.formats import durations
from jaxmon.promql import alerts, re, recorded, up
from jaxmon_alerts.overviews import services
from jaxmon_alerts.overviews.accelerators import FIRING
from jaxmon_alerts.slo import Slos
from jaxmon_alerts.slo.model import CURRENT_BURN_RATE
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, table
from jaxmon_dashboards.boards.rows import now


@row(2, "By service", lines=(1,))
def oncall(slos: Slos) -> Iterator[Panel]:
    """Return one line for each service, coloured as its objectives."""
    every = services.REQUESTS(q.JOB).sum("job")
    firing = alerts(q.JOB, *FIRING, re("severity", "page|ticket")).max(*now.ALERT)
    burning = recorded(CURRENT_BURN_RATE, q.JOB).max("job").of_unit("times")
    columns = (
        Target(firing.count("job"), "Alerts", q.above(1)),
        Target(burning, "Burn", q.BURN),
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
            q.above(durations.seconds(slos.limits.stalled_after)),
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
        labels=("job",),
        cell_links=(q.opening("job", "Debug this service", "debug"),),
        sort="Burn",
    )
