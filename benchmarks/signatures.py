"""
What recording the signature of a compile costs: a training step with many parameters
and the state of its optimizer.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from benchmarks.compiles import GOAL_PERCENT, stopwatch
from benchmarks.rows import Row, agent, taken


GOAL_MICROSECONDS_PER_LEAF = 5.0
_LAYERS, _ROUNDS = 83, 5


def measure() -> list[Row]:
    """Return rows for a step of 500 leaves."""
    import jax

    from jaxmon.agent.warm.part import WarmStarts

    step, given = _training()
    leaves = len(jax.tree_util.tree_leaves(given(1)))
    whole, recording = [], []
    with stopwatch((WarmStarts, "_on_call")) as spent, agent():
        for number in range(_ROUNDS):
            arguments = given(number + 1)
            spent.clear()
            started = perf_counter()
            step(*arguments)
            whole.append(perf_counter() - started)
            recording.append(sum(spent))
        size = _characters() / _ROUNDS
    each = [seconds / leaves * 1e6 for seconds in recording]
    share = [one / all_ for one, all_ in zip(recording, whole, strict=True)]
    return [
        taken(f"compile, training step of {leaves} leaves", whole, "ms", scale=1e3),
        taken(
            "  recording its signature",
            share,
            "%",
            scale=100,
            at_most=GOAL_PERCENT,
            note=f"{recording[0] * 1e3:.1f} ms in the first compile of a process",
        ),
        taken("  the same, each leaf", each, "µs", at_most=GOAL_MICROSECONDS_PER_LEAF),
        Row("  memory, each leaf", size / leaves, "bytes"),
    ]


def _characters() -> int:
    """Return the size of what the agent recorded, one byte for each character."""
    from jaxmon.agent.agent import running, runtime_of
    from jaxmon.agent.warm.part import WarmStarts

    current = running()
    runtime = None if current is None else runtime_of(current)
    part = None if runtime is None else runtime.part(WarmStarts)
    if part is None:
        return 0
    part.recorder.explain()  # adds up what was noted
    return part.recorder.characters


def _training() -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    layer = {"kernel": jnp.ones((8, 8)), "bias": jnp.ones(8)}
    parameters = {f"layer{number}": {"dense": layer} for number in range(_LAYERS)}
    moments = {"count": jnp.zeros((), jnp.int32), "mu": parameters, "nu": parameters}

    def loss(parameters: Any, batch: Any) -> Any:
        for number in range(_LAYERS):
            dense = parameters[f"layer{number}"]["dense"]
            batch = jnp.tanh(batch @ dense["kernel"] + dense["bias"])
        return (batch**2).mean()

    def step(parameters: Any, moments: Any, batch: Any) -> Any:
        slope = jax.grad(loss)(parameters, batch)
        mean = jax.tree_util.tree_map(lambda m, g: m + g, moments["mu"], slope)
        square = jax.tree_util.tree_map(lambda m, g: m + g * g, moments["nu"], slope)
        moved = jax.tree_util.tree_map(lambda p, m: p - m, parameters, mean)
        return moved, {"count": moments["count"] + 1, "mu": mean, "nu": square}

    def given(size: int) -> tuple[Any, Any, Any]:
        return parameters, moments, np.ones((size, 8), np.float32)

    return jax.jit(step), given
