"""Collectives of NCCL, as its Inspector records them."""

from __future__ import annotations

from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Row, Target, line, row, timeseries
from jaxmon.artifacts.overviews import services as overviews


_NO_INSPECTOR = "No NCCL Inspector"


def inspected() -> Row:
    """Return how fast collectives are, and which process arrives last."""
    named = "{{job}} {{collective}}"
    return row(
        27,
        "Collectives",
        line(
            timeseries(
                2701,
                "Bus bandwidth of collectives",
                Target(
                    overviews.BANDWIDTH(q.JOB).least(q.FEW), f"{named} {{{{size}}}}"
                ),
                text=(
                    "Mean by time, of the 20 lowest, by NCCL Inspector. The bus idles "
                    "while ranks wait for the last one: it falls if the network is "
                    "slower, and if ranks arrive at different times."
                ),
                no_value=_NO_INSPECTOR,
            ),
            timeseries(
                2702,
                "Ranks that arrive late at collectives",
                Target(
                    overviews.LATE(q.JOB).least(q.FEW),
                    f"{q.NAMED_PROCESS} {{{{collective}}}}",
                ),
                text=(
                    "Mean time of a collective's kernels as a multiple of the median "
                    "process's, of the 20 with the least. A kernel waits for the last "
                    "rank to arrive, so the last one has the shortest kernels. "
                    "`jaxmon job why` compares the ranks of each communicator."
                ),
                no_value="None arrives late",
            ),
            timeseries(
                2703,
                "Collectives",
                Target(overviews.RECORDED(q.JOB).worst(q.FEW), named),
                Target(overviews.UNRECORDED(q.JOB).worst(q.FEW), f"{named} unrecorded"),
                text=(
                    "Collectives per second that NCCL Inspector recorded, and others "
                    "that were launched: small ones, and with NCCL before 2.30.3 all "
                    "but the last of each interval."
                ),
                no_value=_NO_INSPECTOR,
            ),
        ),
    )
