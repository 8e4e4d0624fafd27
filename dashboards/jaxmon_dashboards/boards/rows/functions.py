"""Functions: calls and their times, compiles, programs, errors, checks of results."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.promql import counter, events, gauge, histogram
from jaxmon.promql.expressions import RANGE, RATE_INTERVAL
from jaxmon_alerts.overviews import hosts, services
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Panel,
    Target,
    row,
    table,
    timeseries,
)


@row(11, "Functions", lines=(1, 2))
def functions(slos: Slos) -> Iterator[Panel]:
    """Return a table of functions, then calls and misses over time."""
    calls = counter(catalog.JIT_CALLS, *q.FUNCTION).rate().sum("function")
    misses = counter(catalog.JIT_CACHE_MISSES, *q.FUNCTION).rate().sum("function")
    recompiles = events.RECOMPILES.within(RANGE, *q.FUNCTION).sum("function")
    seconds = events.COMPILE_SECONDS.within(RANGE, *q.FUNCTION).sum("function")
    errors = events.ERRORS.within(RANGE, *q.FUNCTION).sum("function")
    yield table(1101, "Functions")(
        Target(calls, "Calls"),
        Target(misses, "Misses"),
        Target(recompiles, "Recompiles", q.above(1, slos.limits.recompiles)),
        Target(seconds, "Compile time"),
        Target(errors, "Errors", q.above(1)),
        text="Jitted functions: current rates, and totals over the selected time "
        "range. Sorted by compile time.",
        height=10,
        cell_links=(
            q.opening(
                *("function", "Show only this function", "debug"),
                *("job", "instance", "worker"),
            ),
        ),
        no_value="No calls",
        sort="Compile time",
    )
    yield timeseries(1102, "Calls by function")(calls, text="Calls per second.")
    yield timeseries(1104, "Cache misses by function")(
        misses,
        text="Calls that left the fast path. Not all of them compile, but all of them "
        "run Python code.",
    )


@row(23, "Execution time", lines=(3, 3), collapsed=True)
def calls() -> Iterator[Panel]:
    """Return execution and dispatch times, in separate panels."""
    yield timeseries(2301, "Execution time by function")(
        *_times(catalog.EXECUTION_SECONDS),
        text="Device time of sampled calls, median and p95. Longer after an upgrade "
        "with the same program: the compiler or the hardware.",
    )
    yield timeseries(2302, "Dispatch time by function")(
        *_times(catalog.DISPATCH_SECONDS),
        text="Host time of sampled calls, from call to return, median and p95. Not the "
        "execution time; long if the device queue is full or there are many "
        "arguments.",
    )
    slowdown = gauge(catalog.SLOWDOWN, *q.PROCESS).max("name", "kind", "against")
    yield table(2305, "Slower than before")(
        Target(slowdown.topk(10), "Times as long"),
        text="How many times as long functions and steps take as earlier in the run, "
        "or as in a past run of the same command; 1 if the difference may be noise. "
        "`jaxmon explain` says what changed.",
        alerts=("JaxmonSlowdown",),
        sort="Times as long",
    )
    yield timeseries(2306, "Where the time goes")(
        counter(catalog.WALL_SECONDS, *q.PROCESS).rate().avg("state"),
        text="Wall time of the selected processes by what they do. Device and fetch "
        "are fine while the device computes; everything else keeps it waiting. `jaxmon "
        "explain` names the lines.",
        unbounded=True,
        stacked="percent",
        alerts=("JaxmonTimeLost",),
    )
    yield table(2303, "Non-finite outputs")(
        Target(
            events.NONFINITE.within(RANGE, *q.PROCESS).sum("name").topk(q.FEW), "Values"
        ),
        text="NaN and infinite values in small outputs of sampled calls, in the "
        "selected time range. Many programs have some on purpose, such as masks; see "
        "*Non-finite values* for those that should be finite.",
        sort="Values",
    )
    yield timeseries(2304, "Promotions to float64")(
        events.PROMOTIONS.within(RATE_INTERVAL, *q.FUNCTION).sum("function"),
        text="Programs that compute in float64 although no argument is float64: many "
        "times slower on most accelerators.",
    )


def _times(metric: Metric) -> tuple[Target, ...]:
    seconds = histogram(metric, *q.FUNCTION)
    return tuple(
        Target(q.defined(seconds.quantile(part, "function")), f"p{part * 100:g}")
        for part in (0.5, 0.95)
    )


@row(5, "Compilation", lines=(3,))
def oncall(slos: Slos) -> Iterator[Panel]:
    """Return recompiles, and compiles in progress."""
    recompiles = services.RECOMPILES(q.JOB)
    most = recompiles.over_range("max").topk(10)
    yield timeseries(401, "Recompiles by cause")(
        q.per_minute(recompiles.sum("cause")),
        text="Why functions recompiled: shape and dtype point to the data, "
        "static_argument and new_function to the code.",
        stacked="normal",
        alerts=("JaxmonRecompileStorm",),
        no_value="No recompiles",
    )
    yield timeseries(402, "Recompiles by function")(
        q.per_minute(recompiles).and_(most),
        text="The ten functions with the most recompiles, and their cause.",
        alerts=("JaxmonRecompileStorm",),
        no_value="No recompiles",
    )
    yield timeseries(406, "Oldest compile in progress")(
        hosts.COMPILE_OLDEST(q.JOB).worst(q.FEW),
        text="Age of the longest-running compile, on the 20 worst hosts. Above the "
        "line it is probably stuck, and so is the process.",
        thresholds=q.above(slos.limits.stuck_after),
        alerts=("JaxmonCompileStuck",),
        no_value="None",
    )


@row(13, "Compiles", lines=(4, 4))
def debug(slos: Slos) -> Iterator[Panel]:
    """Return which function compiles why, in which phase, and for how long."""
    listed = events.RECOMPILES.within(RANGE, *q.FUNCTION)
    recompiles = events.RECOMPILES.within(RATE_INTERVAL, *q.FUNCTION)
    yield table(1301, "Recompiles by function and cause")(
        Target(listed.sum("function", "cause").topk(50), "Number"),
        text="Recompiles in the selected time range. The runbook says what to do about "
        "each cause.",
        no_value="No recompiles",
        sort="Number",
        alerts=("JaxmonRecompileStorm",),
    )
    yield timeseries(1302, "Recompiles over time")(
        recompiles.sum("cause"),
        text="Recompiles by cause, per graph interval.",
        stacked="normal",
        alerts=("JaxmonRecompileStorm",),
    )
    spent = events.COMPILE_SECONDS.within(RATE_INTERVAL, *q.FUNCTION)
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS, *q.PROCESS).max(*q.BY_PROCESS)
    yield timeseries(1303, "Compile phases")(
        spent.sum("phase"),
        text="Compile time per phase and graph interval. trace and lower are Python "
        "time on the host; cache_retrieval grows with a slow shared file system.",
        stacked="normal",
    )
    yield timeseries(1306, "Compile time by function")(
        spent.sum("function"),
        text="Compile time per function in all phases, including first calls and "
        "recompiles, per graph interval: precompile or cache the largest first.",
    )
    yield timeseries(1307, "Compiles by outcome")(
        events.COMPILES.within(RATE_INTERVAL, *q.FUNCTION).sum("outcome"),
        text="Programs compiled, loaded from the persistent cache, or failed, per "
        "graph interval.",
        stacked="normal",
        alerts=("JaxmonCompileFailed", "JaxmonThunderingCompilation"),
    )
    yield table(1311, "Oldest compile by process")(
        Target((oldest > 0).topk(q.FEW), "For", q.above(slos.limits.stuck_after)),
        text="Age of the compile that each process is waiting for, of the 20 that wait "
        "longest. A long one is probably stuck.",
        alerts=("JaxmonCompileStuck",),
        no_value="None",
        sort="For",
    )
    yield timeseries(1310, "Persistent cache hit rate")(
        events.CACHE_LOOKUPS.within(RATE_INTERVAL, *q.PROCESS).sum("result"),
        text="Hits and misses, as fractions of all lookups. If there are few hits "
        "after a deployment that did not change the model, the cache key differs, "
        "often because of a version or directory.",
        stacked="percent",
    )
    late = events.LATE_COMPILES.within(RATE_INTERVAL, *q.FUNCTION)
    yield timeseries(1312, "Warm-up, and compiles after it")(
        Target(gauge(catalog.READY, *q.PROCESS).below(1).sum(), "not ready"),
        Target(late.sum("function").topk(10), "{{function}}: compiled after ready"),
        text="Processes that announced a warm-up and are not ready; if it does not "
        "end, `/-/ready` of the process says how far it is. And what processes compile "
        "after they were ready: requests wait for it.",
        alerts=("JaxmonWarmupFailed",),
    )


@row(24, "Programs and persistent cache", lines=(1, 2), collapsed=True)
def programs() -> Iterator[Panel]:
    """Return the latest program of each function, and the persistent cache."""
    obstacles = gauge(catalog.PERSISTENT_CACHE_OBSTACLE, *q.PROCESS)
    written = events.CACHE_WRITES.within(RATE_INTERVAL, *q.PROCESS)
    failed = events.CACHE_ERRORS.within(RATE_INTERVAL, *q.PROCESS)
    # Number of different latest programs of one function across the selected processes.
    info = gauge(catalog.PROGRAM_INFO, *q.FUNCTION)
    different = info.count("function", "fingerprint").count("function")

    def largest(metric: Metric, heading: str) -> Target:
        return Target(gauge(metric, *q.FUNCTION).max("function"), heading)

    yield table(2401, "Latest program of each function")(
        Target(different, "Versions", q.above(2)),
        largest(catalog.PROGRAM_DEVICES, "Devices"),
        largest(catalog.PROGRAM_MATRIX_FLOPS, "FLOPs"),
        largest(catalog.PROGRAM_ACCESSED_BYTES, "Accessed"),
        largest(catalog.PROGRAM_ARGUMENT_BYTES, "Arguments"),
        largest(catalog.PROGRAM_TEMPORARY_BYTES, "Temporary"),
        largest(catalog.PROGRAM_PEAK_BYTES, "Peak"),
        largest(catalog.PROGRAM_FUSIONS, "Fusions"),
        largest(catalog.PROGRAM_INSTRUCTIONS, "Instructions"),
        text="XLA's analysis; the largest value if processes differ. "
        "Processes of one mesh with different versions of a program deadlock; "
        "independent servers may differ. FLOPs are those of matrix products and "
        "convolutions, on all devices, with loops.",
        alerts=("JaxmonProgramsDiverge",),
        sort="Temporary",
    )
    yield timeseries(2402, "Persistent cache obstacles")(
        obstacles.sum("reason"),
        text="Processes with a cache obstacle; `jaxmon explain` has a remedy.",
    )
    yield timeseries(2403, "Persistent cache writes and errors")(
        Target(written.sum(), "written"),
        Target(failed.sum("operation"), "failed"),
        text="Entries written, and failed reads and writes, per graph interval; JAX "
        "only warns about failures.",
    )


@row(6, "Errors and restarts", lines=(2,))
def failures() -> Iterator[Panel]:
    """Return error and restart panels."""
    errors = services.ERRORS(q.JOB)
    yield timeseries(502, "JAX errors by function")(
        errors.worst(10),
        text="The ten functions with the most errors within five minutes, by kind.",
        no_value="No errors",
    )
    yield timeseries(503, "Process restarts")(
        hosts.RESTARTS(q.JOB).worst(q.FEW),
        text="Process restarts per slot within ten minutes, on the 20 hosts with the "
        "most. Several mean a crash loop; see the log.",
        alerts=("JaxmonCrashLoop",),
        no_value="None",
    )


@row(17, "Errors", lines=(3,))
def errors() -> Iterator[Panel]:
    """Return which function fails how."""
    listed = events.ERRORS.within(RANGE, *q.FUNCTION)
    now = events.ERRORS.within(RATE_INTERVAL, *q.FUNCTION)
    yield table(1701, "JAX errors by function and kind")(
        Target(listed.sum("function", "kind").topk(50), "Errors"),
        text="Exceptions in the selected time range. The process log has their "
        "messages.",
        no_value="No errors",
        sort="Errors",
    )
    yield timeseries(1702, "JAX errors over time")(
        now.sum("kind"),
        text="Exceptions by kind, per graph interval. Failures that start together are "
        "often related: compare with process restarts and other functions.",
        alerts=("JaxmonOutOfMemory",),
    )
    yield timeseries(1703, "Warnings of JAX")(
        events.WARNINGS.within(RATE_INTERVAL, *q.PROCESS).sum("kind"),
        text="What JAX warns of, per graph interval, whether or not the program "
        "displays it. donation: memory is held twice; backend: an accelerator is not "
        "used. `jaxmon explain` has the lines.",
    )


@row(22, "Determinism", lines=(4, 1), collapsed=True, no_value="No check")
def checks() -> Iterator[Panel]:
    """Return checks and their outcomes."""
    by = ("function", "outcome")
    checks = counter(catalog.DETERMINISM_CHECKS, *q.FUNCTION).total()
    devices = counter(catalog.DEVICE_DEVIATIONS, *q.FUNCTION).total()
    gradients = counter(catalog.GRADIENT_CHECKS, *q.FUNCTION).total()
    reuse = counter(catalog.KEY_REUSE, *q.FUNCTION).total()
    yield timeseries(2201, "Deviation between two runs")(
        gauge(catalog.OUTPUT_DEVIATION, *q.FUNCTION).max("function"),
        text="Largest relative deviation in each function's last check; 0 if both runs "
        "were bit-identical. Checks are run by the program, or on sampled calls with "
        "`shadow_interval`.",
        width=8,
    )
    yield table(2202, "Determinism checks")(
        Target(checks.sum(*by).topk(50), "Checks"),
        text="Checks since each process started, by outcome.",
        width=8,
        alerts=("JaxmonCheckFailed",),
    )
    yield table(2203, "Gradient checks")(
        Target(gradients.sum(*by).topk(50), "Checks"),
        text="Gradients compared with finite differences, by outcome.",
        alerts=("JaxmonCheckFailed",),
    )
    yield table(2204, "PRNG key reuse")(
        Target((reuse.sum("function") > 0).topk(50), "Uses"),
        text="PRNG key reuse rejected by JAX's key-reuse checker. The same key always "
        "produces the same random numbers.",
        alerts=("JaxmonCheckFailed",),
        no_value="None",
    )
    yield table(2205, "Deviations of one device")(
        Target((devices.sum(*((*q.BY_PROCESS, "device"))) > 0).topk(50), "Checks"),
        text="Determinism checks in which an output differed on this device, but not "
        "on all: from a second run, or from its replicas on most of the others. A "
        "device that appears here alone is probably failing: take it out of service "
        "and test it.",
        alerts=("JaxmonCheckFailed", "JaxmonSilentCorruption"),
        no_value="None",
    )
