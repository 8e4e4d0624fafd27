"""Programs: how large they are, whether hosts run the same, and the cache on disk."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import counter, gauge
from jaxmon.catalog import Metric


def debug() -> Row:
    """
    Return the newest program of each function, and what the persistent cache holds.
    """
    obstacles = gauge(catalog.PERSISTENT_CACHE_OBSTACLE, *q.PROCESS)
    # Most of it while a process starts, before it is scraped for the first time.
    written = counter(catalog.PERSISTENT_CACHE_WRITES, *q.PROCESS).rise()
    failed = counter(catalog.PERSISTENT_CACHE_ERRORS, *q.PROCESS).rise()
    saved = counter(catalog.PERSISTENT_CACHE_SAVED_SECONDS, *q.PROCESS).rise()
    size = gauge(catalog.PERSISTENT_CACHE_SIZE_BYTES, *q.PROCESS)
    named = f"{q.NAMED_PROCESS} {{{{operation}}}}"
    return Row(
        24,
        "Programs and persistent cache",
        (
            _table(),
            Panel(
                id=2406,
                title="Ranks",
                kind="table",
                text="Number of each process in its JAX cluster, and how many there "
                "are: which host a rank in a log or a trace is.",
                targets=(
                    Target(
                        gauge(catalog.PROCESS_INDEX, *q.PROCESS).max(*q.BY_PROCESS),
                        "Rank",
                    ),
                    Target(
                        gauge(catalog.PROCESS_COUNT, *q.PROCESS).max(*q.BY_PROCESS),
                        "Of",
                    ),
                ),
                width=24,
                height=6,
                labels=q.BY_PROCESS,
                sort="Of",
            ),
            Panel(
                id=2402,
                title="Obstacles to the persistent cache",
                kind="timeseries",
                text="Processes in which something keeps programs out of the cache, or "
                "from being found; `jaxmon explain` says what to do.",
                targets=(Target(obstacles.sum("job", "reason"), "{{job}} {{reason}}"),),
                width=8,
            ),
            Panel(
                id=2403,
                title="Persistent cache writes and errors",
                kind="timeseries",
                text="Entries written, and reads and writes that failed, within an "
                "interval of the graph; JAX only warns of the latter.",
                targets=(
                    Target(
                        written.sum(*q.BY_PROCESS),
                        f"{q.NAMED_PROCESS} written",
                    ),
                    Target(
                        failed.sum(*q.BY_PROCESS, "operation"),
                        f"{named} failed",
                    ),
                ),
                width=8,
            ),
            Panel(
                id=2404,
                title="Compile time saved by the cache",
                kind="timeseries",
                text="Time of compiling that hits saved within an interval of the "
                "graph, by JAX's own estimate, which counts whole seconds.",
                targets=(Target(saved.sum("job"), "{{job}}"),),
                width=4,
            ),
            Panel(
                id=2405,
                title="Size of the persistent cache",
                kind="timeseries",
                text="As each process sees its directory; hosts that share one should "
                "agree.",
                targets=(Target(size.max("job", "instance"), "{{job}} {{instance}}"),),
                width=4,
            ),
        ),
        collapsed=True,
    )


def _table() -> Panel:
    def largest(metric: Metric, heading: str) -> Target:
        return Target(gauge(metric, *q.FUNCTION).max("function"), heading)

    # How many different newest programs the chosen processes have of one function.
    info = gauge(catalog.PROGRAM_INFO, *q.FUNCTION)
    different = info.count("function", "fingerprint").count("function")
    return Panel(
        id=2401,
        title="Newest program of each function",
        kind="table",
        text="By XLA's own account; the largest where processes differ. Processes "
        "of one mesh that run several versions of a program wait for each other for "
        "ever; those that serve apart may. Loop bodies count once in FLOPs.",
        targets=(
            Target(different, "Versions", q.above(2)),
            largest(catalog.PROGRAM_DEVICES, "Devices"),
            largest(catalog.PROGRAM_FLOPS, "FLOPs"),
            largest(catalog.PROGRAM_ACCESSED_BYTES, "Accessed"),
            largest(catalog.PROGRAM_ARGUMENT_BYTES, "Arguments"),
            largest(catalog.PROGRAM_TEMPORARY_BYTES, "Temporary"),
            largest(catalog.PROGRAM_PEAK_BYTES, "Peak"),
            largest(catalog.PROGRAM_FUSIONS, "Fusions"),
            largest(catalog.PROGRAM_INSTRUCTIONS, "Instructions"),
        ),
        width=24,
        height=8,
        labels=("function",),
        alerts=("JaxmonProgramsDiverge",),
        sort="Temporary",
    )
