"""A text-embedding server pads its inputs to powers of two, as recommended, and still has requests of half a second long after its start; p50 is a few milliseconds.

Truth: only the length is bucketed; the batch dimension is the number of requests that happened to wait, so each new pair (batch, length) compiles another program during the service.
Advice: pad the batch dimension to a fixed size (or a few sizes) too, and warm up all the shapes before serving.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"compil", r"shape|batch|pad|bucket|dimension")
VOCAB, WIDTH, LAYERS, MAX_BATCH, ROUNDS = 1000, 96, 2, 6, 500
BUCKETS = (16, 32, 64)


def init(key):
    layers = []
    for k in jax.random.split(key, LAYERS):
        ks = jax.random.split(k, 4)
        layers.append({
            "qkv": jax.random.normal(ks[0], (WIDTH, 3 * WIDTH)) * 0.06,
            "out": jax.random.normal(ks[1], (WIDTH, WIDTH)) * 0.06,
            "up": jax.random.normal(ks[2], (WIDTH, 4 * WIDTH)) * 0.06,
            "down": jax.random.normal(ks[3], (4 * WIDTH, WIDTH)) * 0.04,
        })
    return {"embed": jax.random.normal(key, (VOCAB, WIDTH)), "layers": layers}


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


@jax.jit
def embed(params, tokens):
    mask = tokens > 0
    x = params["embed"][tokens]
    for layer in params["layers"]:
        q, k, v = jnp.split(norm(x) @ layer["qkv"], 3, axis=-1)
        weights = jax.nn.softmax(jnp.where(mask[:, None, :], q @ k.swapaxes(1, 2) * WIDTH**-0.5, -1e9))
        x = x + weights @ v @ layer["out"]
        x = x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"]
    return jnp.sum(x * mask[..., None], axis=1) / mask.sum(axis=1, keepdims=True).clip(1)


def collate(texts):
    length = next(b for b in BUCKETS if b >= max(map(len, texts)))
    rows = MAX_BATCH if FIXED else len(texts)  # fault
    tokens = np.zeros((rows, length), np.int32)  # fault
    for row, text in zip(tokens, texts):
        row[: len(text)] = text
    return tokens


rng = np.random.default_rng(0)
params = init(jax.random.key(0))
seen, latencies, lost = set(), [], 0.0
if FIXED:
    for b in BUCKETS:
        embed(params, np.ones((MAX_BATCH, b), np.int32)).block_until_ready()
for _ in range(ROUNDS):
    waiting = int(rng.integers(1, MAX_BATCH + 1))
    longest = int(rng.choice([12, 30, 60], p=[0.5, 0.3, 0.2]))
    texts = [rng.integers(1, VOCAB, size=rng.integers(3, longest + 1)) for _ in range(waiting)]
    t = time.perf_counter()
    tokens = collate(texts)
    vectors = np.asarray(embed(params, tokens))[:waiting]  # fault
    latencies.append(time.perf_counter() - t)
    if not FIXED and tokens.shape not in seen and len(seen) >= len(BUCKETS):
        lost += latencies[-1]
    seen.add(tokens.shape)
print(f"p50 {1e3 * np.median(latencies):.1f} ms, p99 {1e3 * np.quantile(latencies, 0.99):.1f} ms, {len(seen)} shapes")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(lost, 3)}))
