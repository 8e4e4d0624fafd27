"""How much of the time the devices of ranks work, and nothing lets their hosts run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median_high, median_low

from jaxmon.report.job.comparison import Side


# Fractions of the time, in which execution times are known, and in which calls were
# seen in flight or finished.
_MOSTLY, _OFTEN = 0.5, 0.1


def seen(side: Side, windows: range) -> float | None:
    """
    Return for what fraction of the time in *windows* a device certainly had something
    of what all run, of that in which this is known; `None` if it seldom is.
    """
    ahead, behind = side.spent("ahead", windows), side.spent("behind", windows)
    if ahead + behind <= side.spent("seconds", windows) * _OFTEN:
        return None
    return ahead / (ahead + behind)


def estimated(side: Side, windows: range) -> float | None:
    """Return the same of whatever it runs, by sampled execution times."""
    known = side.spent("known", windows)
    if known <= side.spent("seconds", windows) * _MOSTLY:
        return None
    works = side.spent("together", windows) + side.spent("alone", windows)
    # Estimates of a busy host add up to more than the time.
    return min(works / known, 1.0)


class Devices:
    """
    How much of the time devices work, or wait for others in a collective.

    Args:
        sides: the ranks.
        busy: returns that of one of them, `None` if it is unknown.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        busy: Callable[[Side, range], float | None],
    ) -> None:
        self._sides = sides
        self._busy = busy
        self._usual: dict[range, float | None] = {}

    def idle(self, number: int, windows: range) -> float | None:
        """
        Return how much less than others that of the rank *number* did in *windows*,
        `None` if that is unknown.
        """
        if windows not in self._usual:
            found = [self._busy(one, windows) for one in self._sides]
            known = [one for one in found if one is not None]
            most = 2 * len(known) > len(found)
            self._usual[windows] = median_high(known) if most else None
        usual, own = self._usual[windows], self._busy(self._sides[number], windows)
        return None if usual is None or own is None else usual - own


class Held:
    """For how much of the time nothing lets the processes run."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self._sides = sides
        self._usual: dict[range, float] = {}

    def longer(self, side: Side, windows: range) -> float:
        """
        Return how much longer that is for *side* than for the median rank: a machine
        without free processors holds all of them.
        """
        if windows not in self._usual:
            found = [one.ratio("held", windows) for one in self._sides]
            self._usual[windows] = median_low(found)
        return side.ratio("held", windows) - self._usual[windows]
