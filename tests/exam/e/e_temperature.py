"""A text generation server: a queue, a worker thread, clients with their own sampling settings. "In our tests it answers in 50 ms; with real users most answers take half a second, for ever."

Truth: temperature and top_p are static arguments of the jitted generate(), so each new pair of values that a user sends compiles the whole decode loop again.
Advice: pass temperature and top_p as traced (dynamic) arguments; keep static only what sets shapes.
"""
import time
T0 = time.perf_counter()
import json
import queue
import sys
import threading
from concurrent.futures import Future
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"static|temperature|top_p|argument|value|again|each|every|generate")
VOCAB, D, LAYERS, NEW = 2000, 256, 3, 96


def init(key):
    ks = jax.random.split(key, LAYERS * 3 + 1)
    cells = [tuple(jax.random.normal(k, (2 * D, D)) * 0.05 for k in ks[3 * i:3 * i + 3]) for i in range(LAYERS)]
    return {"emb": jax.random.normal(ks[-1], (VOCAB, D)) * 0.3, "cells": cells}


def cell(w, h, x):
    hx = jnp.concatenate([h, x], -1)
    z, r = jax.nn.sigmoid(hx @ w[0]), jax.nn.sigmoid(hx @ w[1])
    return (1 - z) * h + z * jnp.tanh(jnp.concatenate([r * h, x], -1) @ w[2])


def generate(params, prompt, key, temperature, top_p):
    def step(carry, key):
        hs, tok = carry
        x, new = params["emb"][tok], []
        for w, h in zip(params["cells"], hs):
            x = cell(w, h, x)
            new.append(x)
        logits = x @ params["emb"].T / temperature
        sorted_, idx = jax.lax.top_k(logits, 64)
        keep = jnp.cumsum(jax.nn.softmax(sorted_), -1) - jax.nn.softmax(sorted_) < top_p
        pick = jax.random.categorical(key, jnp.where(keep, sorted_, -1e9))
        tok = jnp.take_along_axis(idx, pick[:, None], -1)[:, 0]
        return (new, tok), tok
    hs = [jnp.zeros((prompt.shape[0], D)) for _ in params["cells"]]
    return jax.lax.scan(step, (hs, prompt), jax.random.split(key, NEW))[1].T


generate = jax.jit(generate) if FIXED else jax.jit(generate, static_argnames=("temperature", "top_p"))  # fault
params, inbox, times = init(jax.random.key(0)), queue.Queue(), []


def worker():
    n = 0
    while (job := inbox.get()) is not None:
        prompt, temperature, top_p, answer = job
        n += 1
        t = time.perf_counter()
        out = generate(params, prompt, jax.random.fold_in(jax.random.key(1), n), temperature=temperature, top_p=top_p)  # fault
        answer.set_result(np.asarray(out))
        times.append(time.perf_counter() - t)


thread = threading.Thread(target=worker)
thread.start()
users = np.random.default_rng(0)
for i in range(14):
    answer = Future()
    setting = (1.0, 0.95) if i % 4 == 0 else (round(float(users.uniform(0.2, 1.4)), 2), round(float(users.uniform(0.7, 1.0)), 2))
    inbox.put((users.integers(0, VOCAB, 8).astype(np.int32), *setting, answer))
    assert answer.result().shape == (8, NEW)
inbox.put(None)
thread.join()
usual = float(np.median(times[4::4]))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else sum(times[1:]) - usual * 13}))
