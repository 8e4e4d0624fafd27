"""From tallies to families: what a scrape does with the hooks' figures."""

from __future__ import annotations

from collections.abc import Iterable

from jaxmon import catalog
from jaxmon.agent.compiles.part import Compiles
from jaxmon.agent.counters import Tally
from jaxmon.agent.functions import UNKNOWN, Function, FunctionTable
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, gauge, series


def functions(table: FunctionTable, *, hits_known: bool) -> list[Family]:
    """
    Return the families labelled by function. About 20 µs for each function.

    Args:
        table: the functions.
        hits_known: whether misses are observed; without, every call would look like a
            hit, and nothing is said about hits.
    """
    entries = [f for f in table if is_active(f) or f.name == UNKNOWN]
    counted = [f for f in entries if f.counted]
    folded = [(f, *f.calls_and_hits()) for f in counted]
    return [
        Family(
            catalog.JIT_CALLS,
            [(_series(f, catalog.JIT_CALLS), calls) for f, calls, _ in folded],
        ),
        Family(
            catalog.JIT_CACHE_HITS,
            [
                (_series(f, catalog.JIT_CACHE_HITS), hits)
                for f, _, hits in folded
                if hits_known
            ],
        ),
        Family(
            catalog.JIT_CACHE_MISSES,
            [
                (_series(f, catalog.JIT_CACHE_MISSES), f.missed)
                for f in entries
                if f.name != UNKNOWN
            ],
        ),
        _by_value(catalog.ERRORS, ((f, _errors(f)) for f in entries)),
        _by_value(catalog.COMPILES, ((f, _values((), f.compiles)) for f in entries)),
        _by_value(catalog.RECOMPILES, ((f, _recompiles(f)) for f in entries)),
        Family(
            catalog.COMPILE_SECONDS,
            [
                sample
                for f in entries
                for phase in list(f.phases.values())
                for sample in phase.samples()
            ],
        ),
    ]


def compiles(state: Compiles) -> list[Family]:
    """Return what is being compiled."""
    state.settle()
    running, oldest = state.in_progress()
    return [
        gauge(catalog.COMPILES_IN_PROGRESS, running),
        gauge(catalog.COMPILE_OLDEST_SECONDS, oldest),
    ]


def is_active(function: Function) -> bool:
    """
    Tell whether the program ever called *function*, or had it compiled.

    `jax.jit` alone makes no series, nor does a call that JAX traces: libraries jit
    more than a program uses.
    """
    return bool(
        function.phases  # of most it is this that tells
        or function.missed
        or function.errors
        or any(tally.value for tally in function.compiles.values())
        or function.entered.value > function.traced.value
    )


def _errors(function: Function) -> dict[str, int]:
    initial = () if function.internal else catalog.ERROR_KINDS
    return _values(initial, function.errors)


def _recompiles(function: Function) -> dict[str, int]:
    # Each of the user's functions has every cause from the start, at 0: a rate sees
    # the first recompile. Those of JAX recompile by design, and show what happened.
    known = not function.internal and function.name != UNKNOWN
    initial = catalog.CAUSES if known else ()
    return _values(initial, function.recompiles)


def _values(initial: Iterable[str], tallies: dict[str, Tally]) -> dict[str, int]:
    values = dict.fromkeys(initial, 0)
    values.update((value, tally.value) for value, tally in list(tallies.items()))
    return values


def _by_value(
    metric: Metric, figures: Iterable[tuple[Function, dict[str, int]]]
) -> Family:
    return Family(
        metric,
        [
            (_series(function, metric, value), count)
            for function, counts in figures
            for value, count in counts.items()
        ],
    )


def _series(function: Function, metric: Metric, *values: str) -> str:
    """Return the series of *function* in *metric*, built once."""
    key = (metric.name, *values)
    found = function.series.get(key)
    if found is None:
        found = function.series[key] = series(metric, function.name, *values)
    return found
