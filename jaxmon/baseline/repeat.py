"""Runs commands as often as a comparison of run times needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from jaxmon.baseline.compare import Comparison, compare
from jaxmon.baseline.figures import Tolerance
from jaxmon.baseline.ranks import critical
from jaxmon.baseline.record import Record, from_runs


Measure: TypeAlias = Callable[[int], Record]
"""Runs a command and returns its measures; its argument counts the runs from 0."""


def compare_runs(
    old: Record | Measure,
    new: Measure,
    runs: int,
    allowed: Mapping[str, Tolerance | None],
) -> Comparison:
    """
    Compare *new* with *old*, running them alternately if *old* is a command too.

    Stops as soon as no further run could change that nothing is slower, mostly after
    the first one, or if no number of runs could show it.

    Args:
        old: the baseline.
        new: what to compare with it.
        runs: how often a command runs at most, from 1.
        allowed: tolerance by measure.

    Raises:
        BaselineError: the two are of different hardware.
    """
    before: list[Record] = []
    after: list[Record] = []
    while True:
        if isinstance(old, Record):
            known, planned = old, (len(old.runs), runs)
        else:
            before.append(old(len(before)))
            known, planned = from_runs(before), (runs, runs)
        after.append(new(len(after)))
        found = compare(known, from_runs(after), allowed, runs=planned)
        helps = found.slow_compiles or (found.unclear_times and critical(*planned) >= 0)
        if len(after) >= runs or not helps:
            return found
