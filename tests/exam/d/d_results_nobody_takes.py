"""Embedding of a corpus with a worker thread. "It embeds some batches, then stands still for ever, without an error; small corpora work."

Truth: both queues are bounded and the main thread puts all batches before it takes the first result: the worker blocks in results.put, the main thread in jobs.put: a deadlock.
Advice: take results while putting (a collector thread), or let the queue of results be unbounded.
"""
import time
T0 = time.perf_counter()
import json
import os
import queue
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"hang|dead|stuck|block|stall|stopped|no progress|wait|stand", r"queue|\bput\b|full|results")
progress = [time.perf_counter()]


def watchdog():
    time.sleep(40 - (time.perf_counter() - T0))
    now = time.perf_counter()
    print(json.dumps({"wall": now - T0, "lost": now - progress[0]}), flush=True)
    os._exit(3)


@jax.jit
def embed(params, tokens):
    h = params["table"][tokens]
    for w in params["blocks"]:
        h = h + jnp.tanh(h @ w)
    h = h.mean(1)
    return h / jnp.linalg.norm(h, axis=-1, keepdims=True)


def worker(params, jobs, results):
    while (job := jobs.get()) is not None:
        number, tokens = job
        vectors = np.asarray(embed(params, tokens))
        progress[0] = time.perf_counter()
        results.put((number, vectors))  # fault
    results.put(None)


def main():
    threading.Thread(target=watchdog, daemon=True).start()
    keys = jax.random.split(jax.random.key(0), 5)
    params = {"table": jax.random.normal(keys[0], (3000, 256)), "blocks": [jax.random.normal(k, (256, 256)) / 16 for k in keys[1:]]}
    corpus = np.random.default_rng(0).integers(0, 3000, (60, 64, 64)).astype(np.int32)
    jobs, results = queue.Queue(8), queue.Queue(0 if FIXED else 16)
    thread = threading.Thread(target=worker, args=(params, jobs, results), daemon=True)
    thread.start()
    for number, tokens in enumerate(corpus):
        jobs.put((number, tokens))  # fault
    jobs.put(None)
    index = dict(iter(results.get, None))
    thread.join()
    print(len(index), "batches embedded")
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0}))


main()
