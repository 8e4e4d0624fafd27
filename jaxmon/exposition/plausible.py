"""
Plausibility checks: drivers, runtimes and other processes return sentinel values, such
as 4,294,967,295 degrees, or garbage. A gap in a graph is better, and no false alert.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress

from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, Sample


# Two counters are not read at the same moment: full is at times a little more.
_ROUNDING = 1.01
_MOST_SAID = 256
_SHOWN = 160


class PlausibilityFilter:
    """Filters out values outside the metric's range; logged once each."""

    def __init__(self, log: logging.Logger, who: str) -> None:
        self.dropped = 0
        self._log = log
        self._who = who
        self._logged: set[str] = set()

    def sift(self, families: Iterable[Family]) -> list[Family]:
        """Return *families* without implausible values; about 60 ns per sample."""
        return [
            family if _is_sound(family) else self._rest(family) for family in families
        ]

    def _rest(self, family: Family) -> Family:
        metric = family.metric
        kept: list[Sample] = []
        for name, value in family.samples:
            kept_value = _plausible(metric, value)
            if kept_value is None:
                self._drop(metric, name, value)
            else:
                kept.append((name, kept_value))
        if metric.kind == "histogram" and len(kept) < len(family.samples):
            self.dropped += len(kept)
            kept = []
        # Of samples that are dropped, exemplars are not written.
        return Family(metric, kept, family.exemplars)

    def _drop(self, metric: Metric, name: object, value: object) -> None:
        self.dropped += 1
        if metric.name in self._logged or len(self._logged) >= _MOST_SAID:
            return
        self._logged.add(metric.name)
        low, high = metric.range
        self._log.warning(
            "%s: implausible value of %s: %s (allowed range %g to %g); dropping "
            "such values, further ones are only counted",
            self._who,
            str(name)[:_SHOWN],
            repr(value)[:_SHOWN],
            low,
            high,
        )


def _is_sound(family: Family) -> bool:
    low, high = family.metric.range
    with suppress(Exception):  # what is no number compares as it likes
        # Not a number is in no range.
        return all(low <= value <= high for _, value in family.samples)
    return False


def _plausible(metric: Metric, value: float) -> float | None:
    low, high = metric.range
    with suppress(Exception):  # see above
        if low <= value <= high:
            return value
        if metric.unit == "ratio" and high < value <= high * _ROUNDING:
            return high
    return None
