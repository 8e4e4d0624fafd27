"""Programs: how large they are, whether hosts run the same, and the cache on disk."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, table, timeseries
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
    return row(
        24,
        "Programs and persistent cache",
        line(_table()),
        line(
            table(
                2406,
                "Ranks",
                Target(
                    gauge(catalog.PROCESS_INDEX, *q.PROCESS).max(*q.BY_PROCESS), "Rank"
                ),
                Target(
                    gauge(catalog.PROCESS_COUNT, *q.PROCESS).max(*q.BY_PROCESS), "Of"
                ),
                text="Number of each process in its JAX cluster, and how many there "
                "are: which host a rank in a log or a trace is.",
                labels=q.BY_PROCESS,
                sort="Of",
            ),
            height=6,
        ),
        line(
            timeseries(
                2402,
                "Obstacles to the persistent cache",
                Target(obstacles.sum("job", "reason"), "{{job}} {{reason}}"),
                text="Processes in which something keeps programs out of the cache, or "
                "from being found; `jaxmon explain` says what to do.",
                width=8,
            ),
            timeseries(
                2403,
                "Persistent cache writes and errors",
                Target(written.sum(*q.BY_PROCESS), f"{q.NAMED_PROCESS} written"),
                Target(failed.sum(*q.BY_PROCESS, "operation"), f"{named} failed"),
                text="Entries written, and reads and writes that failed, within an "
                "interval of the graph; JAX only warns of the latter.",
                width=8,
            ),
            timeseries(
                2404,
                "Compile time saved by the cache",
                Target(saved.sum("job"), "{{job}}"),
                text="Time of compiling that hits saved within an interval of the "
                "graph, by JAX's own estimate, which counts whole seconds.",
            ),
            timeseries(
                2405,
                "Size of the persistent cache",
                Target(size.max("job", "instance"), "{{job}} {{instance}}"),
                text="As each process sees its directory; hosts that share one should "
                "agree.",
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
    return table(
        2401,
        "Newest program of each function",
        Target(different, "Versions", q.above(2)),
        largest(catalog.PROGRAM_DEVICES, "Devices"),
        largest(catalog.PROGRAM_FLOPS, "FLOPs"),
        largest(catalog.PROGRAM_ACCESSED_BYTES, "Accessed"),
        largest(catalog.PROGRAM_ARGUMENT_BYTES, "Arguments"),
        largest(catalog.PROGRAM_TEMPORARY_BYTES, "Temporary"),
        largest(catalog.PROGRAM_PEAK_BYTES, "Peak"),
        largest(catalog.PROGRAM_FUSIONS, "Fusions"),
        largest(catalog.PROGRAM_INSTRUCTIONS, "Instructions"),
        text="By XLA's own account; the largest where processes differ. Processes "
        "of one mesh that run several versions of a program wait for each other for "
        "ever; those that serve apart may. Loop bodies count once in FLOPs.",
        labels=("function",),
        alerts=("JaxmonProgramsDiverge",),
        sort="Temporary",
    )
