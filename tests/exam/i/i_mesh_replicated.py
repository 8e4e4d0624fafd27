"""Data-parallel training of a small transformer on a mesh of 4 devices. "Four devices are not faster than one; per-device memory is as large, too."

Truth: state and batch are both put with the replicated sharding P(); every device computes the whole batch, so the work is done four times.
Advice: put the batch with NamedSharding(mesh, P("data")) and only the state replicated.
"""
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

FIXED = "--fixed" in sys.argv
WORDS = (r"replicat|not shard|unshard|every device|all (4 |four )?devices|each device|whole batch|full batch|same work|not (split|partition)", r"batch|device|shard|mesh|input|work|argument")
BATCH, SEQ, DIM, LAYERS, STEPS = 64, 64, 64, 1, 20
mesh = Mesh(np.array(jax.devices()), ("data",))
replicated = NamedSharding(mesh, P())
by_batch = NamedSharding(mesh, P("data"))


def init(key):
    def dense(k, i, o):
        return jax.random.normal(k, (i, o)) * i ** -0.5

    layers = []
    for k in jax.random.split(key, LAYERS):
        a, b, c, d = jax.random.split(k, 4)
        layers.append({"qkv": dense(a, DIM, 3 * DIM), "out": dense(b, DIM, DIM), "up": dense(c, DIM, 4 * DIM), "down": dense(d, 4 * DIM, DIM)})
    return {"embed": 0.1 * jax.random.normal(key, (64, DIM)), "layers": layers}


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def loss_fn(params, tokens):
    x = params["embed"][tokens[:, :-1]]
    mask = jnp.tril(jnp.ones((SEQ, SEQ), bool))
    for lp in params["layers"]:
        q, k, v = jnp.split((norm(x) @ lp["qkv"]).reshape(*x.shape[:2], 4, -1), 3, -1)
        w = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        w = jax.nn.softmax(jnp.where(mask, w, -1e9))
        x = x + jnp.einsum("bhqk,bkhd->bqhd", w, v).reshape(x.shape) @ lp["out"]
        x = x + jax.nn.gelu(norm(x) @ lp["up"]) @ lp["down"]
    logits = norm(x) @ params["embed"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


tx = optax.adamw(1e-3)


@jax.jit
def train_step(state, tokens):
    params, opt = state
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    updates, opt = tx.update(grads, opt, params)
    return (optax.apply_updates(params, updates), opt), loss


def batches(seed):
    rng = np.random.default_rng(seed)
    for _ in range(STEPS):
        start, stride = rng.integers(0, 64, (BATCH, 1)), rng.integers(1, 5, (BATCH, 1))
        yield ((start + stride * np.arange(SEQ + 1)) % 64).astype(np.int32)


params = jax.jit(init)(jax.random.key(0))
state = jax.device_put((params, tx.init(params)), replicated)
losses, t = [], None
for tokens in batches(0):
    tokens = jax.device_put(tokens, by_batch if FIXED else replicated)  # fault
    state, loss = train_step(state, tokens)  # fault
    losses.append(loss)
    t = t or time.perf_counter()
losses = jax.device_get(losses)
loop = time.perf_counter() - t
print("loss %.3f -> %.3f" % (losses[0], losses[-1]))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else 0.75 * loop}))
