"""Collectives of NCCL, by service, and the processes that arrive late at them."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.overviews.model import PROCESS, Overview, Windows
from jaxmon.promql import Expr, counter, ratio


_KIND = ("job", "collective")
# Of the median; ranks that arrive together differ by less.
_LATE = 0.9


def _seconds(window: Windows, *by: str) -> Expr:
    return counter(catalog.NCCL_COLLECTIVE_SECONDS).rate(window.recent).sum(*by)


def _bandwidth(window: Windows) -> Expr:
    by = (*_KIND, "size")
    moved = counter(catalog.NCCL_BUS_BYTES).rate(window.recent).sum(*by)
    return ratio(moved, _seconds(window, *by)).of_unit("bytes per second")


def _late(window: Windows) -> Expr:
    by = (*PROCESS, "collective")
    rate = counter(catalog.NCCL_COLLECTIVES_RECORDED).rate(window.recent).sum(*by)
    mean = ratio(_seconds(window, *by), rate)
    return mean.relative_to(mean.median(*_KIND), *_KIND).of_unit("times") < _LATE


BANDWIDTH = Overview("job", catalog.NCCL_BUS_BYTES, "bandwidth5m", _bandwidth)
RECORDED = Overview(
    "job",
    catalog.NCCL_COLLECTIVES_RECORDED,
    "rate5m",
    lambda window: (
        counter(catalog.NCCL_COLLECTIVES_RECORDED).rate(window.recent).sum(*_KIND)
    ),
)
UNRECORDED = Overview(
    "job",
    catalog.NCCL_UNRECORDED_COLLECTIVES,
    "rate5m",
    lambda window: (
        counter(catalog.NCCL_UNRECORDED_COLLECTIVES).rate(window.recent).sum(*_KIND)
    ),
)
# Of those that are not late, which are nearly all, nothing is recorded.
LATE = Overview("worker", catalog.NCCL_COLLECTIVE_SECONDS, "late_ratio5m", _late)

SELDOM = (BANDWIDTH, RECORDED, UNRECORDED, LATE)
