"""What services compute, and how much of what their devices could."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.overviews.model import PROCESS, Overview, Windows
from jaxmon.promql import Expr, counter, eq, gauge


_MODEL = eq("work", "model")
_FUNCTION = (*PROCESS, "function")


def _utilization(window: Windows) -> Expr:
    """
    Return the utilization of each process whose calls are all known: a function whose
    FLOPs are unknown, and which is called, would make it too low.
    """
    rate = counter(catalog.IDEAL_SECONDS, _MODEL).rate(window.recent).sum(*PROCESS)
    called = counter(catalog.JIT_CALLS).rate(window.recent).sum(*_FUNCTION) > 0
    unknown = gauge(catalog.FLOPS_UNKNOWN_REASON).max(*_FUNCTION)
    # Whether it is called, is unknown too.
    uncounted = gauge(catalog.FLOPS_UNKNOWN_REASON, eq("reason", "uncounted"))
    hidden = unknown.and_(called, *_FUNCTION).or_(uncounted.max(*_FUNCTION))
    return rate.unless(hidden, *PROCESS)


MFU = Overview(
    "job",
    catalog.IDEAL_SECONDS,
    "avg_model_rate5m",
    lambda window: _utilization(window).avg("job"),
)
FLOPS = Overview(
    "job",
    catalog.FLOPS,
    "model_rate5m",
    lambda window: (
        counter(catalog.FLOPS, _MODEL)
        .rate(window.recent)
        .sum("job")
        .of_unit("FLOPs per second")
    ),
)

OFTEN = (MFU, FLOPS)
