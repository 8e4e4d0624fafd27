"""
What a transfer between host and device pays, by kind.

Each kind runs in turns with an agent that observes transfers and one that does not; a
figure is the median of the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

from benchmarks.rows import Row, added, agent, taken


TURNS = 40
CALLS = 200
GOAL_NS = 3_000.0

Kind = Callable[[], float]


def measure() -> list[Row]:
    """Return what each kind of transfer takes, and what observing it adds."""
    rows = []
    for name, kind, goal in _kinds():
        without: list[float] = []
        observed: list[float] = []
        for _ in range(TURNS):
            for found, on in ((without, False), (observed, True)):
                with agent(memory_lines_interval=0, sample_rate=0, transfers=on):
                    found.append(min(kind() for _ in range(2)))
        rows += [
            taken(name, without, "ns"),
            added("  added by jaxmon", "ns", observed, without, at_most=goal),
        ]
    return rows


def _kinds() -> Iterator[tuple[str, Kind, float | None]]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    double = jax.jit(lambda x: x * 2)
    host = np.ones(1000, np.float32)
    ready = double(1.0).block_until_ready()

    def reads() -> float:
        arrays = [double(1.0) for _ in range(CALLS)]
        jax.block_until_ready(arrays)
        return _each(float, arrays)

    yield "float(x)", reads, GOAL_NS
    yield "x.block_until_ready()", _of(lambda _: ready.block_until_ready()), GOAL_NS
    yield "jax.device_put", _of(lambda _: jax.device_put(host)), None
    yield "jnp.asarray of a NumPy array", _of(lambda _: jnp.asarray(host)), None
    yield "an operation that moves nothing", _of(lambda _: ready.astype(int)), None


def _of(action: Callable[[Any], object]) -> Kind:
    return lambda: _each(action, [None] * CALLS)


def _each(action: Callable[[Any], object], items: list[Any]) -> float:
    started = perf_counter_ns()
    for item in items:
        action(item)
    return (perf_counter_ns() - started) / len(items)
