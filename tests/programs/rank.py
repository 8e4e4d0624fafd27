"""
One of two processes of a JAX cluster on the CPU, with a mesh over both.

Both run the same `step`, and each a `prepare` for data of its own size. A line on its
standard input makes it compile `step` for as many rows as the line says.
"""

import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxmon


address, rank = sys.argv[1], int(sys.argv[2])
jaxmon.instrument(port=None)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, 2, rank)
mesh = Mesh(np.array(jax.devices()), ("data",))
spread = NamedSharding(mesh, PartitionSpec("data"))


@jax.jit
def step(x):
    return (x @ x.T).sum()


@jax.jit
def prepare(x):
    return x * 2


def batch(rows):
    whole = np.ones((rows, 4), np.float32)
    return jax.make_array_from_callback(whole.shape, spread, lambda part: whole[part])


prepare(np.ones(3 + rank, np.float32))
print(float(step(batch(8))), flush=True)
for line in sys.stdin:
    # Compiled only: to run what the other does not would hang, which is the point.
    step.lower(batch(int(line))).compile()
