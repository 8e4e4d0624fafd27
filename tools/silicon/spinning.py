"""
A program that computes for ever on its device, alone or as rank 1 of a job of two.

Arguments: ``alone``; or ``job``, the coordinator's address and the rank.
"""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def main() -> None:
    """Take some steps, say ``hangs``, and hang."""
    rank = 1
    if sys.argv[1] == "job":
        import jaxmon

        rank = int(sys.argv[3])
        jaxmon.instrument(port=None)
        # They share the device, so each is to see it.
        jax.distributed.initialize(sys.argv[2], 2, rank, local_device_ids=[0])
    device = jax.local_devices()[0]

    def train_step(weights: jax.Array, limit: float) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < limit, lambda x: x + 1, weights)

    def average(losses: jax.Array) -> jax.Array:
        return losses.mean()

    def delay(losses: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 100_000, lambda _, x: jnp.sin(x), losses)

    step, mean, later = jax.jit(train_step), jax.jit(average), jax.jit(delay)
    # On the processors: NCCL refuses two ranks of a job on one GPU.
    mesh = Mesh(np.array(jax.devices("cpu")), ("rank",))
    ranks = NamedSharding(mesh, PartitionSpec("rank"))
    whole = np.ones((len(mesh.devices),), np.float32)
    losses = jax.make_array_from_callback(whole.shape, ranks, lambda part: whole[part])
    weights = jax.device_put(jnp.zeros((8,)), device)
    # XLA runs a small program on the calling thread, unless its input is not ready:
    # that thread then waits as it would for a GPU.
    for number in range(20):
        weights = step(weights, 8.0 * (number + 1)).block_until_ready()
        jax.block_until_ready(mean(later(losses)))
        time.sleep(0.2)
    print("hangs", flush=True)
    # A loop in float32 stays at 2**24.
    limit = jnp.inf if rank else 8.0
    jax.block_until_ready(step(weights, limit))  # never ends
    jax.block_until_ready(mean(later(losses)))


main()
