"""Metric families labelled by function."""

from __future__ import annotations

from collections.abc import Iterable

from jaxmon.agent.counters import Tally
from jaxmon.agent.functions import UNKNOWN, Function, FunctionTable
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, series


def active(table: FunctionTable) -> list[Function]:
    """
    Return the functions that have series.

    `jax.jit` alone creates none, nor does a traced call: libraries jit more than a
    program uses.
    """
    return [f for f in table if is_active(f) or f.name == UNKNOWN]


def is_active(function: Function) -> bool:
    """Return whether the program has called *function* or compiled it."""
    return bool(
        function.phases  # decides for most functions
        or function.missed
        or function.errors
        or any(tally.value for tally in function.compiles.values())
        or function.objects.calls > function.traced.value
    )


def series_of(function: Function, metric: Metric, *values: str) -> str:
    """Return the series of *function* in *metric*, created once."""
    key = (metric.name, *values)
    found = function.series.get(key)
    if found is None:
        found = function.series[key] = series(metric, function.name, *values)
    return found


def by_value(
    metric: Metric,
    figures: Iterable[tuple[Function, Iterable[str], dict[str, Tally]]],
) -> Family:
    """
    Return the family *metric* from counts by the value of its second label.

    Args:
        metric: the family.
        figures: functions, the label values that each exports from the start, at 0, and
            counts.
    """
    samples: list[tuple[str, float]] = []
    name = metric.name
    for function, initial, tallies in figures:
        counts = dict.fromkeys(initial, 0)
        for value, tally in tallies.copy().items():
            counts[value] = tally.value
        known = function.series.get
        samples += [
            (known((name, v)) or series_of(function, metric, v), n)
            for v, n in counts.items()
        ]
    return Family(metric, samples)
