"""Sampled calls: time on the host, and on the device."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.promql import counter, events, gauge, histogram
from jaxmon.promql.expressions import RATE_INTERVAL
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, timeseries


@row(23, "Execution time", lines=(2, 2, 2), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return execution and dispatch times, in separate panels."""
    nonfinite = events.NONFINITE.within(RATE_INTERVAL, *q.PROCESS).sum("name")
    time = counter(catalog.WALL_SECONDS, *q.PROCESS).rate().avg("state")
    promotions = events.PROMOTIONS.within(RATE_INTERVAL, *q.FUNCTION)
    yield timeseries(2301, "Execution time by function")(
        *_times(catalog.EXECUTION_SECONDS),
        text="Device time of sampled calls, mean and p95, of the ten slowest "
        "functions. Longer after an upgrade with the same program: the compiler or the "
        "hardware.",
    )
    yield timeseries(2302, "Dispatch time by function")(
        *_times(catalog.DISPATCH_SECONDS),
        text="Host time of sampled calls, from call to return, of the ten slowest "
        "functions. Not the execution time; long if the device queue is full or there "
        "are many arguments.",
    )
    slowdown = gauge(catalog.SLOWDOWN, *q.PROCESS).max("name", "kind", "against")
    yield timeseries(2305, "Slower than before")(
        Target(slowdown.worst(10), "{{kind}} {{name}}, {{against}}"),
        text="How many times as long functions and steps take as earlier in the run, "
        "or as in a past run of the same command; 1 if the difference may be noise. "
        "`jaxmon explain` says what changed.",
        alerts=("JaxmonSlowdown",),
    )
    yield timeseries(2306, "Where the time goes")(
        Target(time, "{{state}}"),
        text="Wall time of the selected processes by what they do. Device and fetch "
        "are fine while the device computes; everything else keeps it waiting. `jaxmon "
        "explain` names the lines.",
        unbounded=True,
        stacked="percent",
        alerts=("JaxmonTimeLost",),
    )
    yield timeseries(2303, "Non-finite outputs")(
        Target(nonfinite.worst(10), "{{name}}"),
        text="NaN and infinite values in small outputs of sampled calls, per graph "
        "interval. Many programs have some on purpose, such as masks; see *Non-finite "
        "values* for those that should be finite.",
    )
    yield timeseries(2304, "Promotions to float64")(
        Target(promotions.sum("function").worst(10), "{{function}}"),
        text="Programs that compute in float64 although no argument is float64: many "
        "times slower on most accelerators.",
    )


def _times(metric: Metric) -> tuple[Target, ...]:
    """Return the mean, which buckets cannot blur, and how long it may take."""
    seconds = histogram(metric, *q.FUNCTION)
    return tuple(
        Target(q.defined(of).worst(10), f"{{{{function}}}} {name}")
        for of, name in (
            (seconds.mean("function"), "mean"),
            (seconds.quantile(0.95, "function"), "95 %"),
        )
    )
