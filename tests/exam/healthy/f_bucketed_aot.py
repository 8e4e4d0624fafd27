"""Sequence classifier over texts of varying length: padded to four buckets, each bucket's step compiled ahead of time in a warm-up.

The compiled steps are kept in a dictionary of at most four; losses stay on the device and are read once per sixty steps; a time budget ends it.
"""
import time
T0 = time.perf_counter()
import json
import jax
import jax.numpy as jnp
import numpy as np
import optax

VOCAB, DIM, BATCH, BUCKETS, STEPS = 2000, 128, 32, (16, 32, 64, 96), 240
opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))


def init(key):
    k = jax.random.split(key, 7)
    dense = lambda k, a, b: jax.random.normal(k, (a, b)) / np.sqrt(a)
    return {"emb": 0.1 * jax.random.normal(k[0], (VOCAB, DIM)), "qkv": dense(k[1], DIM, 3 * DIM), "proj": dense(k[2], DIM, DIM),
            "up": dense(k[3], DIM, 4 * DIM), "down": dense(k[4], 4 * DIM, DIM), "head": dense(k[5], DIM, 2)}


def forward(p, ids, mask):
    x = p["emb"][ids]
    q, k, v = jnp.split(x @ p["qkv"], 3, -1)
    att = jnp.einsum("btd,bsd->bts", q, k) / np.sqrt(DIM)
    att = jax.nn.softmax(jnp.where(mask[:, None], att, -1e9), -1)
    x = x + (att @ v) @ p["proj"]
    x = x + jax.nn.gelu(x @ p["up"]) @ p["down"]
    pooled = jnp.sum(x * mask[..., None], 1) / jnp.sum(mask, 1, keepdims=True)
    return pooled @ p["head"]


def train_step(params, opt_state, ids, mask, y):
    def loss_fn(p):
        return optax.softmax_cross_entropy_with_integer_labels(forward(p, ids, mask), y).mean()
    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = opt.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def batches(rng):
    while True:
        longest = int(rng.integers(6, BUCKETS[-1] + 1))
        width = next(b for b in BUCKETS if b >= longest)
        length = rng.integers(5, longest + 1, BATCH)
        ids = rng.integers(2, VOCAB, (BATCH, width)).astype(np.int32)
        mask = np.arange(width) < length[:, None]
        y = rng.integers(0, 2, BATCH).astype(np.int32)
        ids = np.where((rng.random(ids.shape) < 0.2) & (y[:, None] == 1), ids % 50, ids)
        yield np.where(mask, ids, 0).astype(np.int32), mask, y


params = jax.jit(init)(jax.random.key(0))
opt_state = jax.jit(opt.init)(params)
compiled = {}
for width in BUCKETS:
    shapes = (jax.ShapeDtypeStruct((BATCH, width), jnp.int32), jax.ShapeDtypeStruct((BATCH, width), jnp.bool_),
              jax.ShapeDtypeStruct((BATCH,), jnp.int32))
    compiled[width] = jax.jit(train_step, donate_argnums=(0, 1)).lower(params, opt_state, *shapes).compile()
print("warm after", round(time.perf_counter() - T0, 2), "s", flush=True)
losses, stream = [], batches(np.random.default_rng(0))
for step in range(STEPS):
    ids, mask, y = next(stream)
    params, opt_state, loss = compiled[ids.shape[1]](params, opt_state, ids, mask, y)
    losses.append(loss)
    if step % 60 == 59:
        print(step + 1, "loss", float(np.mean(jax.device_get(losses))), flush=True)
        losses.clear()
        if time.perf_counter() - T0 > 60:
            break
print(json.dumps({"wall": time.perf_counter() - T0}))
