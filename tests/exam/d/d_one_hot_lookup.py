"""Embedding service for product titles. "The pooling of a few word vectors takes longer than the network behind it."

Truth: the words are looked up by a one-hot matrix times the whole table (vocabulary x dimension multiplications per word) instead of a gather of the rows.
Advice: table[ids] (jnp.take); on CPU and GPU the gather reads only the rows that are needed.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"one.?hot", r"gather|take|index|lookup|look.up|table\[|matmul|matrix|dot|product")
VOCAB, DIM, BATCH, WORDS_PER_TITLE = 10_000, 128, 32, 16


def lookup(table, ids):
    if FIXED:
        return table[ids]
    return jax.nn.one_hot(ids, VOCAB) @ table  # fault


@jax.jit
def encode(params, ids):
    vectors = lookup(params["table"], ids)  # fault
    weight = (ids > 0)[..., None]
    h = (vectors * weight).sum(1) / jnp.maximum(weight.sum(1), 1)
    for w in params["layers"]:
        h = h + jax.nn.gelu(h @ w)
    return h / jnp.linalg.norm(h, axis=-1, keepdims=True)


@jax.jit
def layers_alone(layers, h):
    for w in layers:
        h = h + jax.nn.gelu(h @ w)
    return h


def titles(rng):
    ids = rng.zipf(1.3, (BATCH, WORDS_PER_TITLE)) % VOCAB
    return np.where(np.arange(WORDS_PER_TITLE) < rng.integers(4, WORDS_PER_TITLE, (BATCH, 1)), ids, 0).astype(np.int32)


def main():
    keys = jax.random.split(jax.random.key(0), 5)
    params = {"table": jax.random.normal(keys[0], (VOCAB, DIM)), "layers": [jax.random.normal(k, (DIM, DIM)) / DIM**0.5 for k in keys[1:]]}
    rng = np.random.default_rng(0)
    encode(params, titles(rng)).block_until_ready()
    # how long the same batch takes with the table's rows already at hand
    pooled = jnp.ones((BATCH, DIM))
    layers_alone(params["layers"], pooled).block_until_ready()
    t = time.perf_counter()
    for _ in range(20):
        layers_alone(params["layers"], pooled).block_until_ready()
    network = (time.perf_counter() - t) / 20
    index, busy = [], 0.0
    for _ in range(80):
        batch = titles(rng)
        t = time.perf_counter()
        index.append(np.asarray(encode(params, batch)))
        busy += time.perf_counter() - t
    index = np.concatenate(index)
    print(index.shape, "closest", float((index[1:] @ index[0]).max()))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0 if FIXED else busy - 80 * network}))


main()
