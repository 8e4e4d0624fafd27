"""How full batches are, by route."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.exposition.families import Family
from jaxmon.exposition.histogram import Histogram
from jaxmon.indicators.labels import Labels


class Fills:
    """
    Batches by route.

    Args:
        labels: admits routes, those of requests as well.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._fills: dict[str, Histogram] = {}

    def observe(self, route: str, size: int, capacity: int) -> None:
        """
        Count a batch. Any thread.

        Raises:
            ValueError: there is no room in it, or less than it holds.
        """
        if not 0 <= size <= capacity or not capacity:
            msg = f"a batch of {size} cannot have room for {capacity}"
            raise ValueError(msg)
        found = self._fills.get(route)
        if found is None:
            route = self._labels.admit(route)
            new = Histogram(catalog.BATCH_FILL_RATIO, route)
            found = self._fills.setdefault(route, new)
        found.observe(size / capacity)

    def collect(self) -> list[Family]:
        """Return the families of batches."""
        fills = list(self._fills.values())
        return [
            Family(
                catalog.BATCH_FILL_RATIO, [one for f in fills for one in f.samples()]
            )
        ]
