"""By what factor the machine alone makes the times of a run longer than another's."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from jaxmon.baseline.slower import CPU, is_crowded
from jaxmon.baseline.times import Run as Timed
from jaxmon.facts.functions import Function, Spread
from jaxmon.report.runs.summary import Run


FEWEST = 16
"""Least number of samples on each side that show a slowdown."""

TIMES = ("execution_seconds", "dispatch_seconds")
"""Times of functions, the more telling first."""

CROWDED = "others held the processors"
# So many functions show what the machine does to all of them.
_ENOUGH = 5


class Machine:
    """
    What is known of the machine, or machines, of two runs.

    An accelerator executes programs by itself. All other times depend on the
    processors: on how fast they do the same piece of work and, if others hold them, on
    how much longer most functions take. So what becomes slower together with the rest
    is not accused then.

    Attributes:
        crowded: whether others may have held the processors after.
        was_crowded: the same before.
    """

    def __init__(self, before: Run, after: Run) -> None:
        self._accelerator = after.versions.get("platform") != CPU
        processors = [one.versions.get("processor") for one in (before, after)]
        self._others = ""
        if all(processors) and processors[0] != processors[1]:
            self._others = f"another processor: {processors[0]} → {processors[1]}"
        old, new = before.snapshot.usual.work, after.snapshot.usual.work
        self._work = new.middle / old.middle if old.middle and new.count else 1.0
        self.crowded, self.was_crowded = crowded(after), crowded(before)
        self._common = _common(functions(before), functions(after))

    def factor(self, measure: str) -> tuple[float, str]:
        """
        Return the factor, at least 1, and why it is not known, if so.

        Args:
            measure: as in `jaxmon.baseline.changes.Change`.
        """
        if self._accelerator and measure == TIMES[0]:
            return 1.0, ""
        if self._others:
            return 1.0, self._others
        if not (self.crowded or self.was_crowded):
            return max(self._work, 1.0), ""
        if self._common is None:
            return 1.0, CROWDED
        return max(self._work, self._common, 1.0), ""


def functions(run: Run) -> dict[str, Function]:
    """Return the program's functions by name."""
    return {one.name: one for one in run.snapshot.functions if not one.internal}


def spread(function: Function, measure: str) -> Spread | None:
    """Return how the times of *function* vary, `None` if they are not known."""
    return function.spreads.get(measure.removesuffix("_seconds"))


def crowded(run: Run) -> bool:
    """Return whether others may have held the processors."""
    return is_crowded(Timed(run.snapshot.usual.waiting, (), {}))


def _common(
    before: Mapping[str, Function], after: Mapping[str, Function]
) -> float | None:
    """Return how many times as long functions take, the median of enough of them."""
    ratios = []
    for name in before.keys() & after.keys():
        for measure in TIMES:
            was, now = spread(before[name], measure), spread(after[name], measure)
            if was and now and min(was.count, now.count) >= FEWEST and was.middle:
                ratios.append(now.middle / was.middle)
                break
    return median(ratios) if len(ratios) >= _ENOUGH else None
