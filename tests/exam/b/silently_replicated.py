"""The word embeddings are split over four devices by a sharding constraint, and yet each device runs out of memory as if
it held the whole table. There is no warning and no error.

Truth: 50,257 rows cannot be divided by 4 devices, so the results of the jitted functions are silently replicated: each device holds a full copy of table and optimizer state.
Advice: pad the vocabulary to a multiple of the number of devices; set `out_shardings` (or `jax.device_put` with the sharding), which raises instead.

Source: jax-ml/jax#26946.
"""
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

FIXED = "--fixed" in sys.argv
WORDS = (r"replicat|every device|each device|all devices|full cop|whole|not shard|unsharded|duplicat|copies", r"shard|divisible|multiple|device|split|spec|pad|memory")
WORDS_KNOWN, WIDTH, BATCH, STEPS = 50_257, 96, 4096, 60
ROWS = -(-WORDS_KNOWN // 4) * 4 if FIXED else WORDS_KNOWN

mesh = jax.make_mesh((4,), ("model",), axis_types=(AxisType.Auto,))
by_row = NamedSharding(mesh, P("model", None))


def shard(tree):
    return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, by_row), tree)  # fault


@jax.jit
def init(key):
    table = jax.random.normal(key, (ROWS, WIDTH)) / WIDTH**0.5
    return shard({"table": table, "mean": jnp.zeros_like(table), "square": jnp.zeros_like(table)})  # fault


@jax.jit
def train_step(state, centre, context, wrong):
    """Skip-gram with one wrong word per pair, Adam written out."""

    def loss_fn(table):
        c, good, bad = table[centre], table[context], table[wrong]
        return -jnp.mean(jax.nn.log_sigmoid((c * good).sum(-1)) + jax.nn.log_sigmoid(-(c * bad).sum(-1)))

    loss, grad = jax.value_and_grad(loss_fn)(state["table"])
    mean = 0.9 * state["mean"] + 0.1 * grad
    square = 0.99 * state["square"] + 0.01 * grad**2
    table = state["table"] - 1e-2 * mean / (jnp.sqrt(square) + 1e-8)
    return shard({"table": table, "mean": mean, "square": square}), loss  # fault


rng = np.random.default_rng(0)
frequency = 1 / np.arange(1, WORDS_KNOWN + 1)
frequency /= frequency.sum()
state = init(jax.random.key(0))
for step in range(STEPS):
    centre = rng.choice(WORDS_KNOWN, BATCH, p=frequency)
    context = (centre + rng.integers(1, 5, BATCH)) % WORDS_KNOWN
    state, loss = train_step(state, centre, context, rng.integers(0, WORDS_KNOWN, BATCH))
    if step % 20 == 0:
        print("step", step, "loss", float(loss))
held = sum(s.data.nbytes for a in jax.tree.leaves(state) for s in a.addressable_shards if s.device == jax.devices()[0])
needed = sum(a.nbytes for a in jax.tree.leaves(state)) / 4
print(f"device 0 holds {held / 1e6:.0f} MB, its share is {needed / 1e6:.0f} MB, {state['table'].sharding.spec}")
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": None if not FIXED else 0.0}))
