"""Numbers at moments from the start of a run on, however long it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jaxmon.facts.marked import Series


MOST = 240
"""Maximum number of moments kept: as many as a chart has room for."""

_DIGITS = 4


class Moment(NamedTuple):
    """Values by series at a Unix *time*; a value that is not known is absent."""

    time: float
    values: Mapping[str, float]


class Moments:
    """
    Keeps at most `MOST` moments: when there are more, each two become one, and each
    later one stands for twice as long.

    Args:
        highest: series of which the highest value stands for several moments; of the
            others, it is the mean.

    One thread adds; another may read.
    """

    def __init__(self, highest: Iterable[str] = ()) -> None:
        self._highest = frozenset(highest)
        self._each = 1
        self._kept: list[Moment] = []
        self._waiting: list[Moment] = []

    def add(self, moment: Moment) -> None:
        """Add a moment; costs microseconds."""
        self._waiting.append(moment)
        if len(self._waiting) < self._each:
            return
        kept = [*self._kept, self._merged(self._waiting)]
        self._waiting = []
        if len(kept) >= MOST:
            kept = [self._merged(kept[i : i + 2]) for i in range(0, len(kept), 2)]
            self._each *= 2
        self._kept = kept

    def series(self) -> dict[str, Series]:
        """Return times and values by name."""
        kept, waiting = self._kept, list(self._waiting)
        every = [*kept, self._merged(waiting)] if waiting else kept
        found: dict[str, list[tuple[float, float]]] = {}
        for one in every:
            for name, value in one.values.items():
                rounded = round(one.time, 2), float(f"{value:.{_DIGITS}g}")
                found.setdefault(name, []).append(rounded)
        return {name: Series(*zip(*of, strict=True)) for name, of in found.items()}

    def _merged(self, several: list[Moment]) -> Moment:
        if len(several) == 1:
            return several[0]
        values = {}
        for name in {name: None for one in several for name in one.values}:
            known = [one.values[name] for one in several if name in one.values]
            values[name] = (
                max(known) if name in self._highest else sum(known) / len(known)
            )
        return Moment(several[-1].time, values)
