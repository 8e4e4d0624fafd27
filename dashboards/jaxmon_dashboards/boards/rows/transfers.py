"""Transfers between host and device, and syncs."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import counter
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, timeseries


@row(21, "Transfers and syncs", lines=(3,), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return transfer and sync panels."""
    by = (*q.BY_PROCESS, "direction")
    named = f"{q.NAMED_PROCESS} {{{{direction}}}}"
    transfers = counter(catalog.HOST_TRANSFERS, *q.PROCESS).rate().sum(*by)
    moved = counter(catalog.HOST_TRANSFER_BYTES, *q.PROCESS).rate().sum(*by)
    blocked = counter(catalog.HOST_TRANSFER_SECONDS, *q.PROCESS).rate().sum(*by)
    waits = counter(catalog.HOST_SYNCS, *q.PROCESS).rate().sum(*q.BY_PROCESS)
    waited = counter(catalog.HOST_SYNC_SECONDS, *q.PROCESS).rate().sum(*q.BY_PROCESS)
    yield timeseries(2101, "Transfers")(
        Target(transfers.worst(q.FEW), named),
        Target(waits.worst(q.FEW), f"{q.NAMED_PROCESS} waits"),
        text="Transfers and syncs per second, of the 20 processes with most. As many "
        "as steps: a line of the training loop reads a value each time, and the device "
        "idles meanwhile; `jaxmon explain` names the line.",
    )
    yield timeseries(2102, "Bytes transferred")(
        Target(moved.worst(q.FEW), named),
        text="Bytes transferred per second, of the 20 processes with most. NumPy "
        "arguments of cached calls are not included.",
    )
    yield timeseries(2103, "Time blocked on transfers")(
        Target(blocked.worst(q.FEW), named),
        Target(waited.worst(q.FEW), f"{q.NAMED_PROCESS} waits"),
        text="Fraction of one thread's time blocked on transfers and syncs, of the 20 "
        "worst, including waiting for results; can exceed 1 with several threads.",
        unbounded=True,
    )
