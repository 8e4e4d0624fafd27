"""
One of two processes that train on one mesh, until stopped.

``--fault diverge --broken`` is a version whose second process compiled another program.
It is compiled only: to run what the others do not would hang, which is the point.
``--fault rank-stuck`` is a second process that stops to call what the first waits in.
"""

from __future__ import annotations

import os
import time

import jaxmon


agent = jaxmon.instrument()

import jax  # noqa: E402 - instrumented before anything binds jax.jit
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from jaxmon_alerts.gameday.programs.pace import ProgramPace  # noqa: E402


RANKS = 2
ROWS, OTHER_ROWS, COLUMNS = 8, 16, 4


@jax.jit
def step(x: jax.Array) -> jax.Array:
    """Return a sum over the whole mesh."""
    return (x @ x.T).sum()


def batch(rows: int) -> jax.Array:
    """Return that many rows, spread over the processes."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    spread = NamedSharding(mesh, PartitionSpec("data"))
    whole = np.ones((rows, COLUMNS), np.float32)
    return jax.make_array_from_callback(whole.shape, spread, lambda part: whole[part])


def main() -> None:
    """Join the others, compile, and wait, or take steps with them."""
    rank = int(os.environ["JAX_PROCESS_ID"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(os.environ["COORDINATOR"], RANKS, rank)
    # After that: JAX takes SIGTERM for a preemption, and waits for the other ranks.
    pace = ProgramPace("rank", __doc__, pause=0.5)
    print(f"metrics: {agent.url}", flush=True)
    data = batch(ROWS)
    step(data).block_until_ready()
    if pace.suffers("diverge") and rank == 1:
        step.lower(batch(OTHER_ROWS)).compile()
    print("ready", flush=True)
    for _ in pace:
        if pace.may_suffer("rank-stuck"):
            while pace.suffers("rank-stuck") and rank == 1:
                time.sleep(0.1)
            step(data).block_until_ready()
        pace.rest()


if __name__ == "__main__":
    main()
