"""A small character transformer in plain JAX with warm-up and cosine schedule, gradient clipping, and a checkpoint now and then written by a background thread.

Structure from nanoGPT-like repositories in JAX (parameters as dict, optax, donated state).
"""
import time
T0 = time.perf_counter()
import functools
import json
import pathlib
import tempfile
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import optax

VOCAB, WIDTH, HEADS, LAYERS, LENGTH, BATCH, STEPS = 64, 48, 4, 2, 32, 12, 210


def init(key):
    def dense(key, m, n):
        return jax.random.normal(key, (m, n)) * 0.02

    keys = jax.random.split(key, LAYERS * 4 + 2)
    layers = [
        {"qkv": dense(k[0], WIDTH, 3 * WIDTH), "out": dense(k[1], WIDTH, WIDTH), "up": dense(k[2], WIDTH, 4 * WIDTH), "down": dense(k[3], 4 * WIDTH, WIDTH)}
        for k in (keys[4 * i : 4 * i + 4] for i in range(LAYERS))
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
    return {"embed": dense(keys[-2], VOCAB, WIDTH), "position": dense(keys[-1], LENGTH, WIDTH), "layers": stacked}


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def block(x, layer):
    q, k, v = jnp.split(norm(x) @ layer["qkv"], 3, axis=-1)
    shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
    attended = jax.nn.dot_product_attention(q.reshape(shape), k.reshape(shape), v.reshape(shape), is_causal=True)
    x = x + attended.reshape(x.shape) @ layer["out"]
    return x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"], None


def loss_fn(params, tokens):
    x = params["embed"][tokens[:, :-1]] + params["position"]
    x, _ = jax.lax.scan(block, x, params["layers"])
    logits = norm(x) @ params["embed"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-3, 30, STEPS)
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.1))


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, opt, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    updates, opt = tx.update(grads, opt, params)
    return optax.apply_updates(params, updates), opt, loss


def write(path, leaves):
    np.savez(path, *leaves)


rng = np.random.default_rng(0)
motifs = rng.integers(VOCAB, size=(40, 12))
corpus = motifs[rng.integers(40, size=20000)].reshape(-1).astype(np.int32)
params = jax.jit(init)(jax.random.key(0))
opt = jax.jit(tx.init)(params)
with tempfile.TemporaryDirectory() as tmp, ThreadPoolExecutor(1) as writer:
    pending = None
    for step in range(STEPS):
        start = rng.integers(len(corpus) - LENGTH - 1, size=(BATCH, 1))
        params, opt, loss = train_step(params, opt, corpus[start + np.arange(LENGTH + 1)])
        if step % 70 == 69:
            print(f"step {step + 1}: loss {float(loss):.3f}")
            if pending is not None:
                pending.result()
            snapshot = [np.array(leaf) for leaf in jax.tree.leaves(params)]
            pending = writer.submit(write, pathlib.Path(tmp) / f"{step + 1}.npz", snapshot)
    pending.result()
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}))
