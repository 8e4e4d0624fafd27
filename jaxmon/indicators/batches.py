"""Batches: how full they are."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Self

from jaxmon import catalog
from jaxmon.exposition.families import Family, Histogram, histograms
from jaxmon.facts.marked import Batches
from jaxmon.indicators import work
from jaxmon.indicators.recorder import ByLabel, Labels, recorder
from jaxmon.indicators.requests import OpenRequest


SITE = "batches"


class Batch:
    """A batch that was recorded; ``with`` limits how long it works for its requests."""

    def __init__(self, ours: work.Work | None) -> None:
        self._work = ours

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._work is not None and work.current() is self._work:
            work.enter(self._work.root)


def batch(
    route: str,
    *,
    size: int,
    capacity: int,
    requests: Iterable[OpenRequest | None] | None = None,
) -> Batch:
    """
    Record a batch that is about to run, for ``jaxmon_batch_fill_ratio``.

    For servers that batch requests and pad them to a compiled shape. Call it once for
    each batch, wherever batches are made; it need not be within a request.

    With *requests*, what is compiled next by this thread or task, and by what it
    starts, is on their behalf and no other's: until its next batch, or until the end of
    the block if it is used with ``with``. Without, jaxmon knows them if they came
    through a queue of `asyncio` or `queue`.

    Costs about a microsecond, next to nothing without an agent. Never raises; a
    batch that exceeds its capacity, or has none, is not counted.

    Args:
        route: as for `jaxmon.request`.
        size: number requested: requests, rows or tokens.
        capacity: number computed, including padding.
        requests: what ``with jaxmon.request(...)`` returned for each of them; `None`
            for items that belong to no request.

    Example:
        >>> import jaxmon
        >>> with jaxmon.request("predict") as request:
        ...     with jaxmon.batch("predict", size=5, capacity=8, requests=[request]):
        ...         answer = 6 * 7
    """
    figures = recorder()
    if figures is None:
        return _NOTHING
    ours = None
    try:
        if requests is not None:
            ours = work.named(
                [request for request in requests if isinstance(request, OpenRequest)]
            )
        figures.batches.observe(str(route), int(size), int(capacity))
    except Exception:  # noqa: BLE001 - theirs: counted, and the program goes on
        figures.guard.failed(SITE, stays_on=True, theirs=True)
    return _NOTHING if ours is None else Batch(ours)


_NOTHING = Batch(None)


class BatchFill:
    """Batch fill, by route; admits *labels* with requests."""

    def __init__(self, labels: Labels) -> None:
        self._fills = ByLabel(labels, partial(Histogram, catalog.BATCH_FILL_RATIO))

    def observe(self, route: str, size: int, capacity: int) -> None:
        """Count a batch, or raise a `ValueError`: no such capacity. Thread-safe."""
        if not 0 <= size <= capacity or not capacity:
            msg = f"invalid batch: size {size}, capacity {capacity}"
            raise ValueError(msg)
        self._fills.of(route).observe(size / capacity)

    def explain(self) -> dict[str, Batches]:
        """Return the number of batches of each route, and their mean fill."""
        fills = self._fills.kept.copy().items()
        return {route: Batches(fill.count, fill.mean) for route, fill in fills}

    def collect(self) -> list[Family]:
        """Return the families of batches."""
        return [histograms(catalog.BATCH_FILL_RATIO, self._fills)]
