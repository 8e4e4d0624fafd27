"""Function panels: calls, cache hits, compile cost."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import Expr, counter, events
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Panel,
    Target,
    Thresholds,
    row,
    table,
    timeseries,
)


RANGE = "$__range"


@row(11, "Functions", lines=(1, 3))
def debug(slos: Slos) -> Iterator[Panel]:
    """Return a table of functions, then calls and misses over time."""
    calls = counter(catalog.JIT_CALLS, *q.FUNCTION).rate().sum("function")
    misses = counter(catalog.JIT_CACHE_MISSES, *q.FUNCTION).rate().sum("function")
    yield _table(slos)
    yield timeseries(1102, "Calls by function")(
        Target(calls.worst(10), "{{function}}"),
        text="The ten functions with the most calls.",
    )
    yield timeseries(1103, "Cache hit rate by function")(
        Target(_hit_rate(calls).least(10), "{{function}}"),
        text="Fraction of calls served without tracing, of the ten functions with the "
        "lowest hit rate.",
        thresholds=q.objective(slos, "cache-hit-rate"),
        alerts=q.alert_of(slos, "cache-hit-rate"),
    )
    yield timeseries(1104, "Cache misses by function")(
        Target(misses.worst(10), "{{function}}"),
        text="Calls that left the fast path, of the ten functions with the most. Not "
        "all of them compile, but all of them run Python code.",
    )


def _table(slos: Slos) -> Panel:
    calls = counter(catalog.JIT_CALLS, *q.FUNCTION).rate().sum("function")
    recompiles = events.RECOMPILES.within(RANGE, *q.FUNCTION)
    seconds = events.COMPILE_SECONDS.within(RANGE, *q.FUNCTION)
    backend = q.backend_compiles().mean("function", window=RANGE)
    errors = events.ERRORS.within(RANGE, *q.FUNCTION)
    # Also of a function that was called once.
    every = counter(catalog.JIT_CALLS, *q.FUNCTION).latest(RANGE)
    most = every.sum("function").topk(50)
    storm = q.above(1, slos.limits.recompiles)
    objective = q.objective(slos, "cache-hit-rate")

    def column(expr: Expr, title: str, thresholds: Thresholds | None = None) -> Target:
        """Return a column of the functions with most calls."""
        return Target(expr.and_(most), title, thresholds)

    return table(1101, "Functions")(
        column(calls, "Calls"),
        column(_hit_rate(calls), "Cache hits", objective),
        column(recompiles.sum("function"), "Recompiles", storm),
        column(seconds.sum("function"), "Compile time"),
        column(q.defined(backend), "Mean backend compile"),
        column(errors.sum("function"), "Errors", q.above(1)),
        text="Jitted functions, the 50 with most calls: current rates, and totals over "
        "the selected time range. Sorted by compile time.",
        height=10,
        labels=("function",),
        cell_links=(
            q.opening(
                *("function", "Show only this function", "debug"),
                *("job", "instance", "worker"),
            ),
        ),
        sort="Compile time",
    )


def _hit_rate(calls: Expr) -> Expr:
    hits = counter(catalog.JIT_CACHE_HITS, *q.FUNCTION).rate().sum("function")
    return q.share(hits, calls)
