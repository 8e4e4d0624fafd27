"""Tagging service with a large dictionary. "Someone added gc.collect() against a supposed leak; since then throughput is a third."

Truth: a full garbage collection after each request walks through the millions of Python objects of the dictionary; it takes longer than the request.
Advice: drop gc.collect() from the loop (or gc.freeze() after loading and a collection now and then); jax arrays are freed by reference counts.
"""
import time
T0 = time.perf_counter()
import gc
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"\bgc\b|garbage|collect",)


def load_dictionary():
    """word -> list of (sense, weight); as a tokenizer or gazetteer holds it."""
    return {f"word{i}": [(i % 97, [i]), (i % 89, [i + 1])] for i in range(50_000)}


@jax.jit
def tag(params, senses):
    h = params["table"][senses]
    for w in params["layers"]:
        h = h + jnp.tanh(h @ w)
    return jnp.argmax(h @ params["out"], -1)


def main():
    k = jax.random.split(jax.random.key(0), 4)
    params = {"table": jax.random.normal(k[0], (100, 192)), "layers": [jax.random.normal(k[1], (192, 192)) / 14] * 3, "out": jax.random.normal(k[2], (192, 30))}
    dictionary = load_dictionary()
    tag(params, np.zeros(256, np.int32)).block_until_ready()
    rng, lost, counts = np.random.default_rng(0), 0.0, np.zeros(30, np.int64)
    for request in range(30):
        words = [f"word{i}" for i in rng.integers(0, 50_000, 256)]
        senses = np.array([dictionary[w][0][0] for w in words], np.int32)
        counts += np.bincount(np.asarray(tag(params, senses)), minlength=30)
        if not FIXED:
            t = time.perf_counter()
            gc.collect()  # fault
            lost += time.perf_counter() - t
    print("tags", counts.tolist())
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))


main()
