"""Batches: how much of what a program computes was asked for."""

from __future__ import annotations

from jaxmon.indicators.current import recorder


SITE = "batches"


def batch(route: str, *, size: int, capacity: int) -> None:
    """
    Count a batch that is about to run, for ``jaxmon_batch_fill_ratio``.

    For servers that gather requests, and pad them to a shape that is compiled. Call it
    once for each batch, wherever batches are made; it need not be within a request.

    Costs about a microsecond, next to nothing where no agent runs. Never raises; a
    batch that holds more than its capacity, or has none, is not counted.

    Args:
        route: as of `jaxmon.request`.
        size: how many of it were asked for: requests, rows or tokens.
        capacity: how many are computed, padding included.

    Example:
        >>> import jaxmon
        >>> jaxmon.batch("predict", size=5, capacity=8)
    """
    indicators = recorder()
    if indicators is None:
        return
    try:
        indicators.fills.observe(str(route), int(size), int(capacity))
    except Exception:  # noqa: BLE001 - theirs: counted, and the program goes on
        indicators.guard.failed(SITE, stays_on=True, theirs=True)
