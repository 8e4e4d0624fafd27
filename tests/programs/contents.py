"""
Programs that contain something in vain, and the same with the advice applied.

``python -m tests.programs.contents NAME [--fixed]`` prints as JSON the findings on it,
and what it costs: seconds by its own clock, or bytes of the first device.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.compiles.programs import Programs
from jaxmon.facts.record import encoded
from jaxmon.limits import Limits
from jaxmon.symptoms.findings import as_fact, find


AGENT = jaxmon.instrument(port=None, socket=False, report=False)

import jax  # noqa: E402 - the agent comes first, as in `jaxmon run`
import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


FIXED = "--fixed" in sys.argv
SECONDS = 2.0
# Less than the default: on a busy machine, all else takes longer.
LIMITS = Limits(time_worth=0.03, time_worth_estimated=0.1)


def score(table: Any, rows: Any, query: Any) -> Any:
    return jnp.tanh(table[rows] @ query).sum()  # captured


def captured() -> float:
    """Return the seconds until a function has run for three shapes."""
    table = jnp.asarray(np.random.default_rng(0).random((20_000, 512), np.float32))

    def score_of(rows: Any, query: Any) -> Any:
        return score(table, rows, query)

    with_table = jax.jit(score)
    call = jax.jit(score_of)
    if FIXED:
        call = lambda *given: with_table(table, *given)  # noqa: E731
    query, began = jnp.ones(512), time.perf_counter()
    for rows in (8, 16, 32):
        call(np.arange(rows), query).block_until_ready()
    return time.perf_counter() - began


def renewed(level: Any) -> Any:
    def smooth(_: Any, level: Any) -> Any:
        return jnp.sin(level) * 0.5 + jnp.roll(level, 1) * 0.5

    return jax.lax.fori_loop(0, 60, smooth, level)


def kept(level: Any) -> Any:
    return level + 1


def choose(level: Any, done: Any) -> Any:
    return jax.lax.cond(done, renewed, kept, level)  # selected


@jax.jit  # type: ignore[untyped-decorator]
def advance(levels: Any, done: Any) -> Any:
    if not FIXED:
        return jax.vmap(choose)(levels, done)

    def some(levels: Any) -> Any:
        picked = done[:, None, None]
        return jnp.where(picked, jax.vmap(renewed)(levels), kept(levels))

    return jax.lax.cond(done.any(), some, kept, levels)


def selected() -> float:
    """Return the seconds of a step, of which one in a hundred renews a level."""
    levels, step = jnp.ones((64, 64, 64)), 0
    advance(levels, np.zeros(64, bool)).block_until_ready()
    began = time.perf_counter()
    while time.perf_counter() < began + SECONDS:
        step += 1
        done = np.arange(64) == (0 if step % 100 == 0 else -1)
        advance(levels, done).block_until_ready()
    return (time.perf_counter() - began) / step


def rows_of(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec("rows"))


def uneven() -> float:
    """Return the bytes of a table that the first device holds."""
    rows = rows_of(Mesh(np.array(jax.devices()), ("rows",)))
    length = 4004 if FIXED else 4001

    @jax.jit  # type: ignore[untyped-decorator]
    def made(scale: Any) -> Any:
        table = jnp.ones((length, 256)) * scale
        return jax.lax.with_sharding_constraint(table, rows)  # uneven

    return held(made(2.0))


def state() -> float:
    """Return the bytes of the state of an optimizer that the first device holds."""
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    rows, everywhere = rows_of(mesh), NamedSharding(mesh, PartitionSpec())
    of_state = rows if FIXED else everywhere
    params = jax.device_put(np.ones((1024, 512), np.float32), rows)
    moments = jax.device_put(np.zeros((2, 1024, 512), np.float32), everywhere)
    first, second = (jax.device_put(moment, of_state) for moment in moments)

    def adam(params: Any, first: Any, second: Any, batch: Any) -> Any:
        gradient = jax.grad(lambda params: jnp.mean((batch @ params) ** 2))(params)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        return params - 0.01 * first / (jnp.sqrt(second) + 1e-8), first, second

    step = jax.jit(adam, out_shardings=(rows, of_state, of_state))
    batch = jax.device_put(np.ones((64, 1024), np.float32), everywhere)
    for _ in range(3):
        params, first, second = step(params, first, second, batch)  # state
    return held(first, second)


def held(*arrays: Any) -> float:
    """Return the bytes of *arrays* that the first device holds."""
    return float(sum(array.addressable_shards[0].data.nbytes for array in arrays))


def main() -> None:
    run: Callable[[], float] = globals()[sys.argv[1]]
    cost = run()
    runtime = runtime_of(AGENT)
    assert runtime is not None
    programs = runtime.part(Programs)
    assert programs is not None
    programs.finish(60)
    runtime.refresh()
    found = find(runtime.overview.judged_by(LIMITS))
    print(
        json.dumps({"findings": [encoded(as_fact(of)) for of in found], "cost": cost})
    )


if __name__ == "__main__":
    main()
