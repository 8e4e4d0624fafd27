"""Data-parallel training over four devices: batch split, parameters replicated, one batch prepared ahead.

Structure: JAX documentation "Distributed arrays and automatic parallelization", with the loader of google/flax examples/lm1b.
"""
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import collections
import itertools
import json
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
by_row, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
BATCH, STEPS, WIDTH = 512, 150, 256


def source():
    rng = np.random.default_rng(0)
    while True:
        x = rng.normal(size=(BATCH, 32)).astype(np.float32)
        yield {"x": x, "y": np.sin(2 * x[:, :1]) * x[:, 1:2]}


def ahead(iterator, size=2):
    waiting = collections.deque(jax.device_put(b, by_row) for b in itertools.islice(iterator, size))
    while waiting:
        yield waiting.popleft()
        waiting.extend(jax.device_put(b, by_row) for b in itertools.islice(iterator, 1))


def predict(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


optimizer = optax.adamw(optax.cosine_decay_schedule(2e-3, STEPS))


def train_step(params, opt_state, batch):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((predict(p, batch["x"]) - batch["y"]) ** 2))(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


sizes = [32, WIDTH, WIDTH, WIDTH, 1]
keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
params = [(jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, jnp.zeros(b)) for k, a, b in zip(keys, sizes, sizes[1:])]
params = jax.device_put(params, everywhere)
opt_state = jax.jit(optimizer.init, out_shardings=everywhere)(params)
step_fn = jax.jit(train_step, out_shardings=everywhere, donate_argnums=(0, 1))
losses = []
for step, batch in zip(range(STEPS), ahead(source())):
    params, opt_state, loss = step_fn(params, opt_state, batch)
    losses.append(loss)
    if step % 50 == 49:
        print(f"step {step + 1}: loss {np.mean(jax.device_get(losses)):.4f}")
        losses.clear()
print("batch on", len(batch["x"].addressable_shards), "devices")
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
