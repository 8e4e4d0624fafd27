"""
What a recompile pays for its cause: our code per compile, by leaves of the arguments.

One leaf of many gets another shape each time, so that every compile is compared with
the sixteen before. The cost of the signature is shown for each leaf, too.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.compiles import GOAL_PERCENT, stopwatch
from benchmarks.rows import Row, agent, taken


GOAL_MICROSECONDS_PER_LEAF = 4.0


def measure() -> list[Row]:
    """Return rows for 10, 100 and 1,000 leaves."""
    rows: list[Row] = []
    for leaves, rounds in ((10, 20), (100, 20), (1_000, 6)):
        rows += _of_leaves(leaves, rounds)
    return rows


def _of_leaves(leaves: int, rounds: int) -> list[Row]:
    from time import perf_counter

    from jaxmon.agent.recompiles.finder import CauseFinder

    step, arguments = _program(leaves)
    whole, ours, signatures, comparisons = [], [], [], []
    with (
        stopwatch() as spent,  # before the probes keep the methods
        agent(),
        stopwatch((CauseFinder, "_signature")) as building,
        stopwatch((CauseFinder, "_compare")) as comparing,
    ):
        for number in range(rounds):
            given = arguments(number)
            for times in (spent, building, comparing):
                times.clear()
            started = perf_counter()
            step(given)
            whole.append(perf_counter() - started)
            ours.append(sum(spent))
            signatures.append(sum(building))
            comparisons.append(sum(comparing))
    share = [mine / all_ for mine, all_ in zip(ours, whole, strict=True)]
    built = [seconds / leaves * 1e6 for seconds in signatures]
    return [
        taken(f"recompile, {leaves:,} leaves", whole, "ms", scale=1e3),
        taken(
            "  our code in it",
            share,
            "%",
            scale=100,
            at_most=GOAL_PERCENT,
            note=f"{statistics.median(ours) * 1e6:,.0f} microseconds",
        ),
        taken(
            "  signature, each leaf",
            built,
            "µs",
            # Of few leaves most is what does not depend on them.
            at_most=GOAL_MICROSECONDS_PER_LEAF if leaves > 10 else None,
        ),
        taken("  comparison with 16", comparisons, "µs", scale=1e6),
    ]


def _program(leaves: int) -> tuple[Any, Any]:
    import jax
    import numpy as np

    kept = {
        f"layer{number}": jax.device_put(np.ones(4, np.float32))
        for number in range(leaves - 1)
    }

    def arguments(number: int) -> dict[str, Any]:
        return {**kept, "last": jax.device_put(np.ones(number + 1, np.float32))}

    def step(tree: Any) -> Any:
        return [leaf * 2 for leaf in jax.tree_util.tree_leaves(tree)]

    return jax.jit(step), arguments
