"""Program and persistent cache panels."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.promql import events, gauge
from jaxmon.promql.expressions import RATE_INTERVAL
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, table, timeseries


@row(24, "Programs and persistent cache", lines=(1, 1, 4), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return the latest program of each function, and the persistent cache."""
    obstacles = gauge(catalog.PERSISTENT_CACHE_OBSTACLE, *q.PROCESS)
    written, failed, saved = (
        counted.within(RATE_INTERVAL, *q.PROCESS)
        for counted in (events.CACHE_WRITES, events.CACHE_ERRORS, events.CACHE_SAVED)
    )
    size = gauge(catalog.PERSISTENT_CACHE_SIZE_BYTES, *q.PROCESS)
    ranks = gauge(catalog.PROCESS_INDEX, *q.PROCESS).max(*q.BY_PROCESS).bottomk(100)
    of = gauge(catalog.PROCESS_COUNT, *q.PROCESS).max(*q.BY_PROCESS)
    named = f"{q.NAMED_PROCESS} {{{{operation}}}}"
    # Number of different latest programs of one function across the selected processes.
    info = gauge(catalog.PROGRAM_INFO, *q.FUNCTION)
    different = info.count("function", "fingerprint").count("function").topk(50)

    def largest(metric: Metric, heading: str) -> Target:
        most = gauge(metric, *q.FUNCTION).max("function")
        return Target(most.and_(different), heading)

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
        text="XLA's analysis, of 50 functions; the largest value if processes differ. "
        "Processes of one mesh with different versions of a program deadlock; "
        "independent servers may differ. FLOPs are those of matrix products and "
        "convolutions, on all devices, with loops.",
        labels=("function",),
        alerts=("JaxmonProgramsDiverge",),
        sort="Temporary",
    )
    yield table(2406, "Ranks")(
        Target(ranks, "Rank"),
        Target(of.and_(ranks), "Of"),
        text="Index of each process in its JAX cluster, and the total: maps a rank in "
        "a log or trace to a host. At most the first 100.",
        height=6,
        labels=q.BY_PROCESS,
        sort="Of",
    )
    yield timeseries(2402, "Persistent cache obstacles")(
        Target(obstacles.sum("job", "reason").worst(q.FEW), "{{job}} {{reason}}"),
        text="Processes with a cache obstacle; `jaxmon explain` has a remedy.",
        width=8,
    )
    yield timeseries(2403, "Persistent cache writes and errors")(
        Target(written.sum(*q.BY_PROCESS).worst(q.FEW), f"{q.NAMED_PROCESS} written"),
        Target(failed.sum(*q.BY_PROCESS, "operation").worst(q.FEW), f"{named} failed"),
        text="Entries written, and failed reads and writes, per graph interval; JAX "
        "only warns about failures.",
        width=8,
    )
    yield timeseries(2404, "Compile time saved by the cache")(
        Target(saved.sum("job").worst(q.FEW), "{{job}}"),
        text="Compile time saved by cache hits per graph interval, as estimated by JAX "
        "in whole seconds.",
    )
    yield timeseries(2405, "Size of the persistent cache")(
        Target(size.max("job", "instance").worst(q.FEW), "{{job}} {{instance}}"),
        text="Cache size as seen by each process; hosts that share a directory should "
        "agree.",
    )
