"""Collectives of NCCL, as its Inspector records them."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, timeseries
from jaxmon.artifacts.dashboards.model import Line, Row, Target
from jaxmon.artifacts.promql import Expr, counter, ratio


_NO_INSPECTOR = "No NCCL Inspector"


def debug() -> Row:
    """Return how fast collectives are, and which process arrives last."""
    return row(27, "Collectives", _inspector())


def _inspector() -> Line:
    """Return what NCCL Inspector records."""

    def rate(metric: catalog.Metric, *by: str) -> Expr:
        return counter(metric, *q.PROCESS).rate().sum(*by)

    kind, process = ("job", "collective"), (*q.BY_PROCESS, "collective")
    named, sized = "{{job}} {{collective}}", (*kind, "size")
    bandwidth = ratio(
        rate(catalog.NCCL_BUS_BYTES, *sized),
        rate(catalog.NCCL_COLLECTIVE_SECONDS, *sized),
    ).of_unit("bytes per second")
    mean = ratio(
        rate(catalog.NCCL_COLLECTIVE_SECONDS, *process),
        rate(catalog.NCCL_COLLECTIVES_RECORDED, *process),
    ).of_unit("seconds")
    return line(
        timeseries(
            2701,
            "Bus bandwidth of collectives",
            Target(bandwidth.least(q.FEW), f"{named} {{{{size}}}}"),
            text=(
                "Mean by time, of the 20 lowest, by NCCL Inspector. The bus idles "
                "while ranks wait for the last one: it falls if the network is slower, "
                "and if ranks come at different times."
            ),
            no_value=_NO_INSPECTOR,
        ),
        timeseries(
            2702,
            "Time of collectives by process",
            Target(mean.least(q.FEW), f"{q.NAMED_PROCESS} {{{{collective}}}}"),
            text=(
                "Mean time of the kernels, of the 20 shortest. A kernel waits for the "
                "last rank to arrive, so the process with the shortest kernels is the "
                "one that arrives last. `jaxmon job why` compares the ranks of each "
                "communicator."
            ),
            no_value=_NO_INSPECTOR,
        ),
        timeseries(
            2703,
            "Collectives",
            *(
                Target(
                    rate(metric, *kind).worst(q.FEW),
                    f"{{{{job}}}} {{{{collective}}}}{what}",
                )
                for metric, what in (
                    (catalog.NCCL_COLLECTIVES_RECORDED, ""),
                    (catalog.NCCL_UNRECORDED_COLLECTIVES, " unrecorded"),
                )
            ),
            text=(
                "Collectives per second that NCCL Inspector recorded, and others that "
                "were launched: small ones, and with NCCL before 2.30.3 all but the "
                "last of each interval."
            ),
            no_value=_NO_INSPECTOR,
        ),
    )
