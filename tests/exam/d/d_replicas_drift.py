"""Data-parallel regression on two devices. "With two devices the model is no better than with half of the data."

Truth: the gradients are not averaged over the devices (no psum/pmean): each device trains its own model on its half; the output takes the one of device 0 and the other is thrown away.
Advice: jax.lax.pmean(grads, "data") before the update (and leave check_vma on, which would have reported it).
"""
import time
T0 = time.perf_counter()
import json
import os
import sys
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec as P

FIXED = "--fixed" in sys.argv
WORDS = (r"pmean|psum|all.?reduce|collective|averag|synchron|reduc|drift|diverg|differ|disagree|replica",)
mesh = jax.make_mesh((2,), ("data",))
optimizer = optax.adam(1e-3)


def loss(params, x, y):
    h = x
    for w, b in params[:-1]:
        h = jax.nn.gelu(h @ w + b)
    w, b = params[-1]
    return jnp.mean((h @ w + b - y) ** 2)


def local_step(params, state, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)  # fault
    if FIXED:
        value, grads = jax.lax.pmean((value, grads), "data")
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value


step = jax.jit(jax.shard_map(local_step, mesh=mesh, in_specs=(P(), P(), P("data"), P("data")),  # fault
                             out_specs=(P(), P(), P()), check_vma=False), donate_argnums=(0, 1))


def batches(rng, count):
    """Two sensors with different ranges: the first half of each batch from one, the second from the other."""
    for _ in range(count):
        x = rng.normal(size=(512, 32)).astype(np.float32)
        x[:256, 0], x[256:, 0] = -1 - abs(x[:256, 0]), 1 + abs(x[256:, 0])
        yield x, (np.sin(2 * x[:, :1]) + x[:, :1] * x[:, 1:2]).astype(np.float32)


def main():
    rng = np.random.default_rng(0)
    sizes = [32, 256, 256, 1]
    params = [(jnp.asarray(rng.normal(size=(a, b)).astype(np.float32) / a**0.5), jnp.zeros(b)) for a, b in zip(sizes, sizes[1:])]
    everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    params = jax.device_put(params, everywhere)
    state = jax.device_put(optimizer.init(params), everywhere)
    for n, batch in enumerate(batches(rng, 500)):
        params, state, value = step(params, state, *jax.device_put(batch, split))  # fault
        if n % 100 == 0:
            print(f"step {n} loss {float(value):.4f}")
    x, y = next(batches(np.random.default_rng(9), 1))
    errors = [float(loss(jax.device_get(params), x[half], y[half])) for half in (slice(0, 256), slice(256, 512))]
    print("error of the first sensor %.3f, of the second %.3f" % tuple(errors))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0 if FIXED else None}))


main()
