"""
What the time of a rank went into, by call: cumulative sums, known at some calls.

All ranks of a job make the same calls, so they are compared over the same ones,
whatever their clocks say and whenever they were read.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import TypeAlias

from jaxmon.report.job.columns import COLUMNS, MOST_ROWS


_MOST_CHARACTERS = 512
# Seconds and calls together.
_MOST = 1e18

# Rows of which a usual pace is known, and the shortest.
_LATELY, _LEAST_PACE = 5, 1e-6
_INDEX = {name: number for number, name in enumerate(COLUMNS)}
_CALLS = _INDEX["calls"]


Place: TypeAlias = tuple[int, float]
"""Between two rows: how many are before it, and what part of the next one."""


class Course:
    """
    Cumulative sums of rows, the oldest first.

    Args:
        numbers: those of all rows, each of as many as `COLUMNS`.

    Attributes:
        calls: the number of calls at the end.
    """

    __slots__ = ("_sums", "calls")

    def __init__(self, numbers: array[float]) -> None:
        width = len(COLUMNS)
        self._sums: list[array[float]] = [
            array("d", accumulate(numbers[column::width], initial=0.0))
            for column in range(width)
        ]
        self.calls = self._sums[_CALLS][-1]

    def place(self, calls: float) -> Place:
        """Return where so many *calls* had been made, for `sums`."""
        made = self._sums[_CALLS]
        row = min(bisect_right(made, calls), len(made) - 1)
        before, after = made[row - 1], made[row]
        if after <= before:
            return row - 1, 1.0
        return row - 1, min(max((calls - before) / (after - before), 0.0), 1.0)

    def sums(self, column: str, places: Sequence[Place]) -> list[float]:
        """Return the sums of *column* up to each of *places*."""
        known = self._sums[_INDEX[column]]
        return [
            known[row] + part * (known[row + 1] - known[row]) for row, part in places
        ]

    def calls_before(self, seconds: float) -> float:
        """Return how many calls had been made so many *seconds* before the end."""
        times, made = self._sums[_INDEX["seconds"]], self._sums[_CALLS]
        wanted = times[-1] - seconds
        if wanted <= 0:
            return 0.0
        row = min(bisect_right(times, wanted), len(times) - 1)
        before, after = times[row - 1], times[row]
        part = (wanted - before) / (after - before) if after > before else 1.0
        return made[row - 1] + part * (made[row] - made[row - 1])

    def age(self, calls: float) -> float:
        """Return how many seconds before the end so many *calls* had been made."""
        [then] = self.sums("seconds", [self.place(calls)])
        return self.seconds - then

    @property
    def seconds(self) -> float:
        """The seconds in all."""
        return self._sums[_INDEX["seconds"]][-1]

    @property
    def pace(self) -> float:
        """The seconds of a usual call lately, not less than a microsecond."""
        latest = slice(-_LATELY - 1, None)
        made = pairwise(self._sums[_CALLS][latest])
        times = pairwise(self._sums[_INDEX["seconds"]][latest])
        found = [
            (b - a) / (after - before)
            for (before, after), (a, b) in zip(made, times, strict=True)
            if after > before
        ]
        return max(median(found), _LEAST_PACE) if found else math.inf


def read(document: object) -> Course | None:
    """
    Return the course in an agent's *document*, rows of numbers as text; `None` if there
    is none.
    """
    if not isinstance(document, (list, tuple)) or not 0 < len(document) <= MOST_ROWS:
        return None
    if not all(map(_is_row, document)):
        return None
    try:
        # All rows at once: there are thousands of documents.
        numbers = array("d", map(float, " ".join(document).split(" ")))
    except ValueError:
        return None
    # Nothing decreases; NaN is in no range.
    if min(numbers) < 0 or not sum(numbers) <= _MOST:
        return None
    found = Course(numbers)
    return found if found.calls > 0 and found.seconds > 0 else None


def _is_row(text: object) -> bool:
    """Return whether *text* has as many words as a row has numbers."""
    if not isinstance(text, str) or len(text) > _MOST_CHARACTERS:
        return False
    return text.count(" ") == len(COLUMNS) - 1
