"""Compiles: how many, why, how long."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import heatmap, line, row, table, timeseries
from jaxmon.artifacts.dashboards.model import Line, Row, Target
from jaxmon.artifacts.promql import counter, eq, gauge, histogram
from jaxmon.artifacts.slo import Slos, durations


def oncall(slos: Slos) -> Row:
    """Return recompiles, cache hits and compiles in progress."""
    recompiles = counter(catalog.RECOMPILES, *q.FUNCTION).rate()
    phases = histogram(catalog.COMPILE_SECONDS, *q.FUNCTION).sum.rise().sum("phase")
    by_host = ("job", "instance")
    running = gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS).sum(*by_host)
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS, *q.PROCESS).max(*by_host)
    return row(
        5,
        "Compilation",
        line(
            timeseries(
                401,
                "Recompiles by cause",
                Target(q.per_minute(recompiles.sum("cause")), "{{cause}}"),
                text="Why functions were compiled again: shape and dtype point at the "
                "data, static_argument and new_function at the code.",
                stacked="normal",
                alerts=("JaxmonRecompileStorm",),
            ),
            timeseries(
                402,
                "Recompiles by function",
                Target(
                    q.per_minute(recompiles.sum("function")).topk(10), "{{function}}"
                ),
                text="The ten functions that compile most often again.",
                alerts=("JaxmonRecompileStorm",),
            ),
            timeseries(
                403,
                "Lowest cache hit rates",
                Target(q.hit_rate("function").bottomk(10), "{{function}}"),
                text="Calls served without tracing, of the ten functions with the "
                "lowest share. Below the line calls pay for tracing or compiling.",
                maximum=1,
                thresholds=q.objective(slos, "cache-hit-rate"),
                alerts=q.alert_of(slos, "cache-hit-rate"),
            ),
        ),
        line(
            timeseries(
                404,
                "Time spent compiling",
                Target(phases, "{{phase}}"),
                text="Time that all processes spent making programs ready, by phase, "
                "counted when a phase is done, within an interval of the graph.",
                stacked="normal",
            ),
            timeseries(
                405,
                "Compiles in progress",
                Target(running.topk(20), "{{job}} {{instance}}"),
                text="Programs being compiled or read from the persistent cache now, "
                "by the twenty hosts with most. All at once: they share no cache.",
            ),
            timeseries(
                406,
                "Oldest compile in progress",
                Target(oldest.topk(20), "{{job}} {{instance}}"),
                text="Age of the compile that runs longest, of the twenty worst hosts. "
                "Past the line it is probably stuck, and the process with it.",
                thresholds=q.above(durations.seconds(slos.thresholds.stuck_after)),
                alerts=("JaxmonCompileStuck",),
            ),
        ),
    )


def debug() -> Row:
    """Return which function compiles why, in which phase, and for how long."""
    return row(13, "Compiles", _recompiles(), *_durations(), _cache())


def _recompiles() -> Line:
    recompiles = counter(catalog.RECOMPILES, *q.FUNCTION)
    by = ("function", "cause")
    return line(
        table(
            1301,
            "Recompiles by function and cause",
            Target(recompiles.increase("$__range").sum(*by) > 0, "Recompiles"),
            text="Recompiles within the chosen time. For shape, pad the input to few "
            "shapes; for new_function, jit once, outside the loop.",
            labels=by,
            no_value="No recompile",
            sort="Recompiles",
            alerts=("JaxmonRecompileStorm",),
        ),
        timeseries(
            1302,
            "Recompiles over time",
            Target(
                q.per_minute(recompiles.rate().sum(*by)).topk(10),
                "{{function}} {{cause}}",
            ),
            text="When the functions and causes that recompile most did so.",
            alerts=("JaxmonRecompileStorm",),
        ),
    )


def _durations() -> tuple[Line, ...]:
    seconds = histogram(catalog.COMPILE_SECONDS, *q.FUNCTION, rare=True)
    backend = q.backend_compiles()
    outcomes = counter(catalog.COMPILES, *q.FUNCTION).rise().sum("outcome")
    running = gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS).sum(*q.BY_PROCESS)
    slowest = q.known(backend.mean("function")).topk(10)
    return (
        line(
            timeseries(
                1303,
                "Compile phases",
                Target(q.known(seconds.mean("phase")), "{{phase}}"),
                text="Mean time of each phase. trace and lower cost the host's Python; "
                "cache_retrieval grows with a slow shared file system.",
            ),
            heatmap(
                1304,
                "Compiles by duration",
                Target(backend.buckets(), "{{le}}"),
                text="How many backend compiles took how long.",
            ),
            timeseries(
                1305,
                "Backend compile time by function",
                Target(slowest, "{{function}}"),
                text="Mean of the compiles that ended, of the ten functions whose "
                "compiles take longest.",
            ),
        ),
        line(
            timeseries(
                1306,
                "Compile time by function",
                Target(
                    (seconds.sum.rise().sum("function") > 0).topk(10), "{{function}}"
                ),
                text="Time that a function cost in all phases, first calls and "
                "recompiles, within an interval of the graph: what to precompile or to "
                "cache first.",
            ),
            timeseries(
                1307,
                "Compiles by outcome",
                Target(outcomes, "{{outcome}}"),
                text="Programs compiled, loaded from the persistent cache, or failed, "
                "within an interval of the graph.",
                stacked="normal",
            ),
            timeseries(
                1308,
                "Compiles in progress by process",
                Target(running, q.NAMED_PROCESS),
                text="Which processes compile now. All at once: they compile the same "
                "program for want of a shared cache.",
                stacked="normal",
            ),
        ),
    )


def _cache() -> Line:
    # Most of them while a process starts, before it is scraped for the first time.
    asked = counter(catalog.PERSISTENT_CACHE_REQUESTS, *q.PROCESS).rise()
    hit = eq("result", "hit")
    hits = counter(catalog.PERSISTENT_CACHE_REQUESTS, hit, *q.PROCESS).rise()
    return line(
        timeseries(
            1309,
            "Persistent cache look-ups",
            Target(asked.sum("result"), "{{result}}"),
            text="Hits and misses of JAX's compilation cache on disk, within an "
            "interval of the graph. None at all: jax_compilation_cache_dir is not set.",
            stacked="normal",
        ),
        timeseries(
            1310,
            "Persistent cache hit rate",
            Target(q.share(hits.sum("job"), asked.sum("job")), "{{job}}"),
            text="Share of look-ups that hit, by service. Low after a deployment that "
            "changed no model: the key differs, often by version or directory.",
            maximum=1,
        ),
    )
