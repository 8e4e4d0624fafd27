"""Waits for arrays without blocking inside JAX."""

from __future__ import annotations

from typing import Any

from jaxmon.agent.jaxlink.arrays import is_ready_or_deleted, underlying_array
from jaxmon.clocks import monotonic
from jaxmon.threads import Event


_FIRST_LOOK, _LAST_LOOK = 0.002, 0.1


def arrays_in(jax: Any, tree: Any) -> list[Any]:
    """Return the arrays in *tree*; of PRNG keys, those that they wrap."""
    leaves = jax.tree_util.tree_leaves(tree)
    return [underlying_array(leaf) for leaf in leaves if isinstance(leaf, jax.Array)]


def unready_until(jax: Any, tree: Any, stopped: Event) -> float | None:
    """
    Wait for the arrays in *tree*; return the `time.monotonic` when they were last seen
    unready, 0 if never, and `None` if *stopped* meanwhile.

    A thread that is blocked inside JAX at interpreter exit crashes the process and
    changes its exit code.
    """
    arrays, pause, unready = arrays_in(jax, tree), _FIRST_LOOK, 0.0
    while not all(map(is_ready_or_deleted, arrays)):
        unready = monotonic()
        if stopped.wait(pause):
            return None
        pause = min(pause * 1.5, _LAST_LOOK)
    return unready
