"""Evaluation of a generator: decode a batch on the device, then score the texts against references (edit distance) in a process pool.
"Generation takes a second or so per batch, yet the evaluation as a whole crawls."

Truth: a new spawn pool is made for each batch; its processes start Python and import this module (and JAX with it) anew each time, and are thrown away after some ms of work.
Advice: make the pool once before the loop and reuse it (and keep JAX out of the workers' imports).
"""
import time
T0 = time.perf_counter()
import json
import multiprocessing as mp
import sys
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"pool|process|spawn|child|worker|subprocess", r"each|every|per |again|repeat|creat|start|times|wait|reuse|once")
V, D, B, STEPS, BATCHES = 4096, 512, 48, 64, 10


def edit_distance(pair):
    a, b = pair
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def generate(params, prompt):
    def body(carry, _):
        tok, s = carry
        s = jnp.tanh(params["emb"][tok] @ params["w"] + s @ params["r"])
        tok = jnp.argmax(s @ params["out"], -1).astype(jnp.int32)
        return (tok, s), tok
    return jax.lax.scan(body, (prompt, jnp.zeros((B, D))), None, length=STEPS)[1].T


def main():
    ks = jax.random.split(jax.random.key(0), 4)
    shapes = {"emb": (V, D), "w": (D, D), "r": (D, D), "out": (D, V)}
    params = {n: jax.random.normal(k, s) * 0.06 for k, (n, s) in zip(ks, shapes.items())}
    gen, ctx = jax.jit(generate), mp.get_context("spawn")
    refs = np.random.default_rng(0).integers(0, V, (BATCHES, B, STEPS))
    distances, lost = [], []
    keep = ctx.Pool(2) if FIXED else None
    for b in range(BATCHES):
        texts = np.asarray(gen(params, jnp.arange(B, dtype=jnp.int32) + b))
        pairs = list(zip(texts.tolist(), refs[b].tolist()))
        if FIXED:
            distances += keep.map(edit_distance, pairs)
            continue
        t = time.perf_counter()
        with ctx.Pool(2) as pool:  # fault
            distances += pool.map(edit_distance, pairs)  # fault
        lost.append(time.perf_counter() - t)
    if keep:
        keep.close()
        keep.join()
    print("mean distance", np.mean(distances))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else sum(lost[1:])}))


if __name__ == "__main__":
    main()
