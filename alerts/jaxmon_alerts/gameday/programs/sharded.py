"""
Train on several devices of one process, until stopped.

The state is donated, batches are spread over the devices, parameters are the same on
all. With the fault ``corrupt``, one device computes wrongly: in each step, a bit flips
in its memory. The CPU's devices, since memory of others cannot be written to from here.
"""

from __future__ import annotations

import ctypes

import jaxmon


agent = jaxmon.instrument()

import jax  # noqa: E402 - instrumented before anything binds jax.jit
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from jaxmon_alerts.gameday.programs.pace import ProgramPace  # noqa: E402


ROWS, COLUMNS = 32, 8
RATE = 0.01
FAULTY = 1
BIT = 1 << 6


def loss_of(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the mean square error of a batch."""
    return jnp.mean((x @ weights - y) ** 2)


def train_step(
    weights: jax.Array, x: jax.Array, y: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the weights after one batch, and its loss."""
    loss, gradient = jax.value_and_grad(loss_of)(weights, x, y)
    return weights - RATE * gradient, loss


def flip(array: jax.Array, number: int) -> None:
    """Flip a bit of what the device of that *number* holds of *array*."""
    array.block_until_ready()
    shard = next(s for s in array.addressable_shards if s.device.id == number)
    place = ctypes.c_uint8.from_address(shard.data.unsafe_buffer_pointer())
    place.value ^= BIT


def main() -> None:
    """Train; mended, continue with what another device holds."""
    pace = ProgramPace("sharded", __doc__, pause=0.05)
    print(f"metrics: {agent.url}", flush=True)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    everywhere, spread = (
        NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",))
    )
    step = jax.jit(train_step, donate_argnums=0)
    source = np.random.default_rng(0)
    x = jax.device_put(source.normal(size=(ROWS, COLUMNS)).astype("float32"), spread)
    y = jax.device_put(source.normal(size=(ROWS, 1)).astype("float32"), spread)
    weights = jax.device_put(np.zeros((COLUMNS, 1), np.float32), everywhere)
    weights, _ = step(weights, x, y)
    print("ready", flush=True)
    was_faulty = False
    for _ in jaxmon.steps(pace, items=ROWS):
        if faulty := pace.suffers("corrupt"):
            flip(weights, FAULTY)
        elif was_faulty:
            weights = jax.device_put(np.asarray(weights), everywhere)
        was_faulty = faulty
        weights, _ = step(weights, x, y)
        pace.rest()


if __name__ == "__main__":
    main()
