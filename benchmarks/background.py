"""What the agent's threads use of a core beside a loop of a hundred steps a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from time import perf_counter

from benchmarks.rows import Row, agent
from jaxmon.threads import running


# Looks are more frequent in the first 20 seconds.
WARM_UP = 22.0
SECONDS = 30.0
STEP = 0.01

GOAL_SHARE = 0.5


def measure() -> list[Row]:
    """Return the share of a core of each thread, and of all of them."""
    import jax

    import jaxmon

    @jax.jit  # type: ignore[untyped-decorator]
    def step(weights: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights = weights - 0.01 * jax.numpy.tanh(batch @ weights)
        return weights, weights.mean()

    with agent(sample_rate=1):
        weights = batch = jax.numpy.ones((64, 64)) * 0.01
        before: dict[str, float] = {}
        began = measured = perf_counter()
        for number in jaxmon.steps(ticks()):
            weights, loss = step(weights, batch)
            jaxmon.log_values({"loss": loss}, step=number)
            now = perf_counter()
            if not before and now - began >= WARM_UP:
                before, measured = used(), now
            if now - began >= WARM_UP + SECONDS:
                break
        after = used()
        passed = perf_counter() - measured
    shares = {
        name: (seconds - before.get(name, 0.0)) / passed * 100
        for name, seconds in after.items()
    }
    return [
        Row(
            "share of a core, 100 steps a second",
            sum(shares.values()),
            "%",
            at_most=GOAL_SHARE,
        ),
        *(
            Row(f"  {name}", share, "%")
            for name, share in sorted(shares.items())
            if share > 0
        ),
    ]


def ticks() -> Iterator[int]:
    """Count, a hundred times a second."""
    due, number = perf_counter(), 0
    while True:
        yield number
        number += 1
        due += STEP
        time.sleep(max(due - perf_counter(), 0.0))


def used() -> dict[str, float]:
    """Return the processor seconds of each thread of ours that runs."""
    found: dict[str, float] = {}
    for thread in running():
        if thread.ident is not None:
            clock = time.pthread_getcpuclockid(thread.ident)
            spent = time.clock_gettime(clock)
            found[thread.name] = found.get(thread.name, 0.0) + spent
    return found
