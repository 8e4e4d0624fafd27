"""Jitted functions: calls, compiles, recompiles and errors, summed over processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from jaxmon import catalog
from jaxmon.facts.host import ErrorSummary, FunctionSummary, Totals
from jaxmon.facts.reading import Reading, in_order


# What agents call JAX's own functions, one by one or all together.
_OF_JAX = ("jax", "jaxlib")


MOST = 500
"""Functions in a summary: two and a half processes of 200 that share none."""


def shown(found: Sequence[FunctionSummary]) -> list[FunctionSummary]:
    """Return `MOST` of *found*: the program's before JAX's own, then in their order."""
    return sorted(found, key=lambda one: one["internal"])[:MOST]


def functions(now: Reading) -> list[FunctionSummary]:
    """Return the functions that did anything, by compile time."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    causes: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key, metric in (
        ("calls", catalog.JIT_CALLS),
        ("hits", catalog.JIT_CACHE_HITS),
        ("misses", catalog.JIT_CACHE_MISSES),
        ("recompiles", catalog.RECOMPILES),
        ("errors", catalog.ERRORS),
        ("seconds", catalog.COMPILE_SECONDS),
    ):
        for labels, value in now.of(metric).items():
            if "cache_retrieval" not in labels[2:]:  # which is no compile
                sums[labels[1]][key] += value
    for (_, function, outcome), value in now.of(catalog.COMPILES).items():
        sums[function][outcome] += value
    for (_, function, cause), value in now.of(catalog.RECOMPILES).items():
        if value:
            causes[function][cause] += value
    return [
        FunctionSummary(
            name=name,
            internal=is_internal(name),
            calls=of["calls"],
            hits=of.get("hits"),
            misses=of["misses"],
            hit_rate=_rate(of.get("hits"), of["calls"]),
            compiles=of["compiled"],
            loads=of["cache_hit"],
            failed_compiles=of["failed"],
            recompiles=of["recompiles"],
            compile_seconds=of["seconds"],
            errors=of["errors"],
            causes=dict(causes[name]),
        )
        for name, of in sorted(sums.items(), key=lambda item: -item[1]["seconds"])
        if any(of.values())
    ]


def errors(now: Reading) -> list[ErrorSummary]:
    """Return the errors by function and kind, the most frequent first."""
    counts: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (worker, function, kind), value in now.of(catalog.ERRORS).items():
        if value:
            counts[function, kind][worker] = value
    found = [
        ErrorSummary(
            function=function,
            kind=kind,
            workers=in_order(of),
            count=sum(of.values()),
        )
        for (function, kind), of in counts.items()
    ]
    return sorted(found, key=lambda one: (-one["count"], one["function"]))


def totals(found: Sequence[FunctionSummary]) -> Totals:
    """Return the sums of *found*, JAX's own functions included."""
    known = [function["hits"] for function in found if function["hits"] is not None]
    hits = sum(known) if known else None
    calls = sum(function["calls"] for function in found)
    return Totals(
        calls=calls,
        hits=hits,
        misses=sum(function["misses"] for function in found),
        hit_rate=_rate(hits, calls),
        compiles=sum(function["compiles"] for function in found),
        loads=sum(function["loads"] for function in found),
        failed_compiles=sum(function["failed_compiles"] for function in found),
        recompiles=sum(function["recompiles"] for function in found),
        compile_seconds=sum(function["compile_seconds"] for function in found),
        errors=sum(function["errors"] for function in found),
    )


def is_internal(name: str) -> bool:
    """Return whether *name*, as agents label functions, is of one of JAX's own."""
    return name.partition(".")[0] in _OF_JAX


def _rate(hits: float | None, calls: float) -> float | None:
    return hits / calls if hits is not None and calls else None
