"""Compiles: how many, why, how long."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import counter, eq, gauge, histogram
from jaxmon.artifacts.slo import Slos, durations


def oncall(slos: Slos) -> Row:
    """Return recompiles, cache hits and compiles in progress."""
    recompiles = counter(catalog.RECOMPILES, *q.FUNCTION).rate()
    phases = histogram(catalog.COMPILE_SECONDS, *q.FUNCTION).sum.rise().sum("phase")
    by_host = ("job", "instance")
    running = gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS).sum(*by_host)
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS, *q.PROCESS).max(*by_host)
    return Row(
        5,
        "Compilation",
        (
            Panel(
                id=401,
                title="Recompiles by cause",
                kind="timeseries",
                text="Why functions were compiled again: shape and dtype point at the "
                "data, static_argument and new_function at the code.",
                targets=(Target(q.per_minute(recompiles.sum("cause")), "{{cause}}"),),
                width=8,
                stacked="normal",
                alerts=("JaxmonRecompileStorm",),
            ),
            Panel(
                id=402,
                title="Recompiles by function",
                kind="timeseries",
                text="The ten functions that compile most often again.",
                targets=(
                    Target(
                        q.per_minute(recompiles.sum("function")).topk(10),
                        "{{function}}",
                    ),
                ),
                width=8,
                alerts=("JaxmonRecompileStorm",),
            ),
            Panel(
                id=403,
                title="Lowest cache hit rates",
                kind="timeseries",
                text="Calls served without tracing, of the ten functions with the "
                "lowest share. Below the line calls pay for tracing or compiling.",
                targets=(Target(q.hit_rate("function").bottomk(10), "{{function}}"),),
                width=8,
                maximum=1,
                thresholds=q.objective(slos, "cache-hit-rate"),
                alerts=q.alert_of(slos, "cache-hit-rate"),
            ),
            Panel(
                id=404,
                title="Time spent compiling",
                kind="timeseries",
                text="Time that all processes spent making programs ready, by phase, "
                "counted when a phase is done, within an interval of the graph.",
                targets=(Target(phases, "{{phase}}"),),
                width=8,
                stacked="normal",
            ),
            Panel(
                id=405,
                title="Compiles in progress",
                kind="timeseries",
                text="Programs being compiled or read from the persistent cache now, "
                "by the twenty hosts with most. All at once: they share no cache.",
                targets=(Target(running.topk(20), "{{job}} {{instance}}"),),
                width=8,
            ),
            Panel(
                id=406,
                title="Oldest compile in progress",
                kind="timeseries",
                text="Age of the compile that runs longest, of the twenty worst hosts. "
                "Past the line it is probably stuck, and the process with it.",
                targets=(Target(oldest.topk(20), "{{job}} {{instance}}"),),
                width=8,
                thresholds=q.above(durations.seconds(slos.thresholds.stuck_after)),
                alerts=("JaxmonCompileStuck",),
            ),
        ),
    )


def debug() -> Row:
    """Return which function compiles why, in which phase, and for how long."""
    return Row(13, "Compiles", (*_recompiles(), *_durations(), *_cache()))


def _recompiles() -> tuple[Panel, ...]:
    recompiles = counter(catalog.RECOMPILES, *q.FUNCTION)
    by = ("function", "cause")
    return (
        Panel(
            id=1301,
            title="Recompiles by function and cause",
            kind="table",
            text="Recompiles within the chosen time. For shape, pad the input to few "
            "shapes; for new_function, jit once, outside the loop.",
            targets=(
                Target(recompiles.increase("$__range").sum(*by) > 0, "Recompiles"),
            ),
            labels=by,
            no_value="No recompile",
            sort="Recompiles",
            alerts=("JaxmonRecompileStorm",),
        ),
        Panel(
            id=1302,
            title="Recompiles over time",
            kind="timeseries",
            text="When the functions and causes that recompile most did so.",
            targets=(
                Target(
                    q.per_minute(recompiles.rate().sum(*by)).topk(10),
                    "{{function}} {{cause}}",
                ),
            ),
            alerts=("JaxmonRecompileStorm",),
        ),
    )


def _durations() -> tuple[Panel, ...]:
    seconds = histogram(catalog.COMPILE_SECONDS, *q.FUNCTION, rare=True)
    backend = q.backend_compiles()
    outcomes = counter(catalog.COMPILES, *q.FUNCTION).rise().sum("outcome")
    running = gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS).sum(*q.BY_PROCESS)
    slowest = q.known(backend.mean("function")).topk(10)
    return (
        Panel(
            id=1303,
            title="Compile phases",
            kind="timeseries",
            text="Mean time of each phase. trace and lower cost the host's Python; "
            "cache_retrieval grows with a slow shared file system.",
            targets=(Target(q.known(seconds.mean("phase")), "{{phase}}"),),
            width=8,
        ),
        Panel(
            id=1304,
            title="Compiles by duration",
            kind="heatmap",
            text="How many backend compiles took how long.",
            targets=(Target(backend.buckets(), "{{le}}"),),
            width=8,
        ),
        Panel(
            id=1305,
            title="Backend compile time by function",
            kind="timeseries",
            text="Mean of the compiles that ended, of the ten functions whose compiles "
            "take longest.",
            targets=(Target(slowest, "{{function}}"),),
            width=8,
        ),
        Panel(
            id=1306,
            title="Compile time by function",
            kind="timeseries",
            text="Time that a function cost in all phases, first calls and recompiles, "
            "within an interval of the graph: what to precompile or to cache first.",
            targets=(
                Target(
                    (seconds.sum.rise().sum("function") > 0).topk(10), "{{function}}"
                ),
            ),
            width=8,
        ),
        Panel(
            id=1307,
            title="Compiles by outcome",
            kind="timeseries",
            text="Programs compiled, loaded from the persistent cache, or failed, "
            "within an interval of the graph.",
            targets=(Target(outcomes, "{{outcome}}"),),
            width=8,
            stacked="normal",
        ),
        Panel(
            id=1308,
            title="Compiles in progress by process",
            kind="timeseries",
            text="Which processes compile now. All at once: they compile the same "
            "program for want of a shared cache.",
            targets=(Target(running, q.NAMED_PROCESS),),
            width=8,
            stacked="normal",
        ),
    )


def _cache() -> tuple[Panel, ...]:
    # Most of them while a process starts, before it is scraped for the first time.
    asked = counter(catalog.PERSISTENT_CACHE_REQUESTS, *q.PROCESS).rise()
    hit = eq("result", "hit")
    hits = counter(catalog.PERSISTENT_CACHE_REQUESTS, hit, *q.PROCESS).rise()
    return (
        Panel(
            id=1309,
            title="Persistent cache look-ups",
            kind="timeseries",
            text="Hits and misses of JAX's compilation cache on disk, within an "
            "interval of the graph. None at all: jax_compilation_cache_dir is not set.",
            targets=(Target(asked.sum("result"), "{{result}}"),),
            stacked="normal",
        ),
        Panel(
            id=1310,
            title="Persistent cache hit rate",
            kind="timeseries",
            text="Share of look-ups that hit, by service. Low after a deployment that "
            "changed no model: the key differs, often by version or directory.",
            targets=(Target(q.share(hits.sum("job"), asked.sum("job")), "{{job}}"),),
            maximum=1,
        ),
    )
