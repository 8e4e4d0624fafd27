"""Data-parallel training of an MLP classifier over a mesh of 4 devices. "Four devices, and not any faster than one."

Truth: the batch is put on the mesh with P() (replicated) instead of P("data"): each device computes the whole global batch, four times the work.
Advice: put the batch with NamedSharding(mesh, P("data")).
"""
import time
T0 = time.perf_counter()
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
import json
import sys
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

FIXED = "--fixed" in sys.argv
WORDS = (r"replicat|(not|n't|un)[- ]?shard|(each|every|all).{0,30}devices?.{0,60}(whole|same|full|all|entire)|redundant|duplicat|cop(y|ies)", r"device|batch|shard|mesh|input")
B, D, H, C, STEPS = 2048, 256, 512, 10, 60
mesh = Mesh(np.array(jax.devices()), ("data",))
replicated = NamedSharding(mesh, P())
batch_sharding = NamedSharding(mesh, P("data") if FIXED else P())  # fault
tx = optax.adamw(1e-3)


def init(key):
    sizes = [D, H, H, C]
    return [(jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, jnp.zeros(b))
            for k, a, b in zip(jax.random.split(key, 3), sizes, sizes[1:])]


def loss_fn(params, x, y):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    logits = x @ params[-1][0] + params[-1][1]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


@jax.jit
def train_step(params, opt_state, x, y):
    loss, g = jax.value_and_grad(loss_fn)(params, x, y)
    up, opt_state = tx.update(g, opt_state, params)
    return optax.apply_updates(params, up), opt_state, loss


rng = np.random.default_rng(0)
proj = rng.normal(size=(D, C)).astype(np.float32)
data_x = rng.normal(size=(16384, D)).astype(np.float32)
data_y = (data_x @ proj).argmax(1).astype(np.int32)
params = jax.device_put(init(jax.random.key(0)), replicated)
opt_state = jax.jit(tx.init, out_shardings=replicated)(params)
for step in range(STEPS):
    i = rng.integers(0, len(data_x), B)
    x, y = jax.device_put((data_x[i], data_y[i]), batch_sharding)  # fault
    params, opt_state, loss = train_step(params, opt_state, x, y)  # fault
    if (step + 1) % 20 == 0:
        print("step", step + 1, "loss", float(loss), flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
