"""Data parallel training on four devices: the batch is sharded, the parameters are replicated, jit inserts the reductions.

Structure from the JAX documentation "Distributed arrays and automatic parallelization" (batch data parallelism).
"""
import time
T0 = time.perf_counter()
import json
import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

BATCH, STEPS, SIZES = 512, 300, (64, 256, 256, 8)
mesh = jax.make_mesh((4,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
by_batch, replicated = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())


def init(key):
    keys = jax.random.split(key, len(SIZES) - 1)
    return [(jax.random.normal(k, (m, n)) * (2 / m) ** 0.5, jnp.zeros(n)) for k, m, n in zip(keys, SIZES, SIZES[1:])]


def predict(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


@jax.jit
def train_step(params, x, y):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((predict(p, x) - y) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss


rng = np.random.default_rng(0)
mixing = rng.standard_normal((64, 8)).astype(np.float32) / 8
params = jax.device_put(init(jax.random.key(0)), replicated)
for step in range(STEPS):
    x = rng.standard_normal((BATCH, 64), dtype=np.float32)
    x, y = jax.device_put((x, np.tanh(x @ mixing)), by_batch)
    params, loss = train_step(params, x, y)
    if step % 100 == 99:
        print(f"step {step + 1}: loss {float(loss):.4f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}))
