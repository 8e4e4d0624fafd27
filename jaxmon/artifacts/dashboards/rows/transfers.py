"""Transfers between host and device, and waits."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, timeseries
from jaxmon.artifacts.dashboards.model import Row, Target
from jaxmon.artifacts.promql import counter


def debug() -> Row:
    """Return what each process moves, and how long that holds it up."""
    by = (*q.BY_PROCESS, "direction")
    named = f"{q.NAMED_PROCESS} {{{{direction}}}}"
    transfers = counter(catalog.HOST_TRANSFERS, *q.PROCESS).rate().sum(*by)
    moved = counter(catalog.HOST_TRANSFER_BYTES, *q.PROCESS).rate().sum(*by)
    blocked = counter(catalog.HOST_TRANSFER_SECONDS, *q.PROCESS).rate().sum(*by)
    waits = counter(catalog.HOST_SYNCS, *q.PROCESS).rate().sum(*q.BY_PROCESS)
    waited = counter(catalog.HOST_SYNC_SECONDS, *q.PROCESS).rate().sum(*q.BY_PROCESS)
    return row(
        21,
        "Transfers and waits",
        line(
            timeseries(
                2101,
                "Transfers",
                Target(transfers, named),
                Target(waits, f"{q.NAMED_PROCESS} waits"),
                text="Transfers and waits per second. As many as steps: a line of the "
                "training loop reads a value each time, and the device idles "
                "meanwhile; `jaxmon explain` names the line.",
            ),
            timeseries(
                2102,
                "Bytes transferred",
                Target(moved, named),
                text="What is moved per second. NumPy arguments of cached calls are "
                "not seen.",
            ),
            timeseries(
                2103,
                "Time blocked by transfers",
                Target(blocked, named),
                Target(waited, f"{q.NAMED_PROCESS} waits"),
                text="Share of the time of one thread that transfers and waits block, "
                "waiting for results included; more than one where threads do.",
            ),
        ),
        collapsed=True,
    )
