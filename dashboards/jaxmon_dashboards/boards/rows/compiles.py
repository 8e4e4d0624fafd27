"""Compile panels."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.host.formats import durations
from jaxmon.promql import eq, events, gauge, histogram
from jaxmon.promql.expressions import RANGE, RATE_INTERVAL
from jaxmon_alerts.overviews import processes, services
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Panel,
    Target,
    heatmap,
    row,
    table,
    timeseries,
)


@row(5, "Compilation", lines=(3, 3))
def oncall(slos: Slos) -> Iterator[Panel]:
    """Return recompiles, cache hits and compiles in progress."""
    recompiles = services.RECOMPILES(q.JOB)
    by_host = ("job", "instance")
    running = processes.COMPILES_IN_PROGRESS(q.JOB).sum(*by_host)
    oldest = processes.COMPILE_OLDEST(q.JOB).max(*by_host)
    yield timeseries(401, "Recompiles by cause")(
        Target(q.per_minute(recompiles.sum("cause")), "{{cause}}"),
        text="Why functions recompiled: shape and dtype point to the data, "
        "static_argument and new_function to the code.",
        stacked="normal",
        alerts=("JaxmonRecompileStorm",),
        no_value="No recompiles",
    )
    yield timeseries(402, "Recompiles by function")(
        Target(q.per_minute(recompiles.sum("function")).worst(10), "{{function}}"),
        text="The ten functions with the most recompiles.",
        alerts=("JaxmonRecompileStorm",),
        no_value="No recompiles",
    )
    yield timeseries(403, "Lowest cache hit rates")(
        Target(q.hit_rate("function").least(10), "{{function}}"),
        text="Cache hit rate of the ten functions with the lowest rate. Below the "
        "line, calls pay for tracing or compiling.",
        thresholds=q.objective(slos, "cache-hit-rate"),
        alerts=q.alert_of(slos, "cache-hit-rate"),
    )
    yield timeseries(404, "Time spent compiling")(
        Target(services.COMPILING(q.JOB).sum("phase").of_unit(""), "{{phase}}"),
        text="How many processes are tracing, lowering or compiling, on average over "
        "five minutes, by phase; counted when a phase ends.",
        stacked="normal",
        alerts=("JaxmonCompileSlow",),
    )
    yield timeseries(405, "Compiles in progress")(
        Target(running.worst(q.FEW), "{{job}} {{instance}}"),
        text="Programs currently being compiled or loaded from the persistent cache, "
        "on the 20 hosts with the most. Many hosts at once: they do not share a cache.",
        no_value="None",
    )
    yield timeseries(406, "Oldest compile in progress")(
        Target(oldest.worst(q.FEW), "{{job}} {{instance}}"),
        text="Age of the longest-running compile, on the 20 worst hosts. Above the "
        "line it is probably stuck, and so is the process.",
        thresholds=q.above(durations.seconds(slos.limits.stuck_after)),
        alerts=("JaxmonCompileStuck",),
        no_value="None",
    )


@row(13, "Compiles", lines=(2, 3, 4, 2, 2))
def debug(slos: Slos) -> Iterator[Panel]:
    """Return which function compiles why, in which phase, and for how long."""
    by = ("function", "cause")
    listed, recompiles = (
        events.RECOMPILES.within(window, *q.FUNCTION).sum(*by)
        for window in (RANGE, RATE_INTERVAL)
    )
    yield table(1301, "Recompiles by function and cause")(
        Target(listed.topk(50), "Recompiles"),
        text="Recompiles in the selected time range. The runbook says what to do about "
        "each cause.",
        labels=by,
        no_value="No recompiles",
        sort="Recompiles",
        alerts=("JaxmonRecompileStorm",),
    )
    yield timeseries(1302, "Recompiles over time")(
        Target(recompiles.worst(10), "{{function}} {{cause}}"),
        text="Recompiles of the functions and causes with the most, per graph "
        "interval.",
        alerts=("JaxmonRecompileStorm",),
    )
    seconds = histogram(catalog.COMPILE_SECONDS, *q.FUNCTION, rare=True)
    spent = events.COMPILE_SECONDS.within(RATE_INTERVAL, *q.FUNCTION)
    backend = q.backend_compiles()
    outcomes = events.COMPILES.within(RATE_INTERVAL, *q.FUNCTION).sum("outcome")
    running = gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS).sum(*q.BY_PROCESS)
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS, *q.PROCESS).max(*q.BY_PROCESS)
    slowest = q.defined(backend.mean("function")).worst(10)
    yield timeseries(1303, "Compile phases")(
        Target(q.defined(seconds.mean("phase")), "{{phase}}"),
        text="Mean time per phase. trace and lower are Python time on the host; "
        "cache_retrieval grows with a slow shared file system.",
    )
    yield heatmap(1304, "Compiles by duration")(
        Target(backend.buckets(), "{{le}}"),
        text="Distribution of backend compile times.",
    )
    yield timeseries(1305, "Backend compile time by function")(
        Target(slowest, "{{function}}"),
        text="Mean backend compile time of the ten slowest functions.",
    )
    yield timeseries(1306, "Compile time by function")(
        Target(spent.sum("function").worst(10), "{{function}}"),
        text="Compile time per function in all phases, including first calls and "
        "recompiles, per graph interval: precompile or cache the largest first.",
        alerts=("JaxmonCompileSlow",),
    )
    yield timeseries(1307, "Compiles by outcome")(
        Target(outcomes, "{{outcome}}"),
        text="Programs compiled, loaded from the persistent cache, or failed, per "
        "graph interval.",
        stacked="normal",
        alerts=("JaxmonCompileFailed", "JaxmonThunderingCompilation"),
    )
    yield timeseries(1308, "Compiles in progress by process")(
        Target((running > 0).worst(q.FEW), q.NAMED_PROCESS),
        text="Processes currently compiling, at most 20. All at once: they compile the "
        "same program because they share no cache.",
        stacked="normal",
        no_value="None",
    )
    yield timeseries(1311, "Oldest compile by process")(
        Target((oldest > 0).worst(q.FEW), q.NAMED_PROCESS),
        text="Age of the compile that each process is waiting for, of the 20 that wait "
        "longest. Above the line it is probably stuck.",
        thresholds=q.above(durations.seconds(slos.limits.stuck_after)),
        alerts=("JaxmonCompileStuck",),
        no_value="None",
    )
    asked = events.CACHE_LOOKUPS.within(RATE_INTERVAL, *q.PROCESS)
    hits = events.CACHE_LOOKUPS.within(RATE_INTERVAL, eq("result", "hit"), *q.PROCESS)
    yield timeseries(1309, "Persistent cache lookups")(
        Target(asked.sum("result"), "{{result}}"),
        text="Hits and misses of JAX's compilation cache on disk, per graph interval. "
        "No data: jax_compilation_cache_dir is not set.",
        stacked="normal",
    )
    yield timeseries(1310, "Persistent cache hit rate")(
        Target(q.share(hits.sum("job"), asked.sum("job")).least(q.FEW), "{{job}}"),
        text="Hit rate by service. If low after a deployment that did not change the "
        "model, the cache key differs, often because of a version or directory.",
    )
    waiting = gauge(catalog.READY, *q.PROCESS).max(*q.BY_PROCESS).below(1)
    tried = events.WARMUPS.within(RATE_INTERVAL, *q.PROCESS)
    yield timeseries(1312, "Processes that warm up")(
        Target(waiting.sum("job").worst(q.FEW), "{{job}}"),
        text="Processes that announced a warm-up and are not ready. If it does not "
        "end, `/-/ready` of the process says how far it is.",
        alerts=("JaxmonNotReady",),
    )
    yield timeseries(1313, "Signatures warmed up")(
        Target(tried.sum("result"), "{{result}}"),
        text="Signatures that `jaxmon.warmup` tried, per graph interval. Those that "
        "failed are in the log of the process, with a reason: export the signatures "
        "again.",
        stacked="normal",
        alerts=("JaxmonWarmupFailed",),
    )
