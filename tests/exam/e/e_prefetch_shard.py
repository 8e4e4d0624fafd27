"""Regression training from .npy shards, a background thread reads and augments ahead. "After a while it just stands there, no error in the log that I'd notice."

Truth: one shard is truncated; np.load raises in the prefetch thread, which dies; the training loop waits in queue.get() for ever.
Advice: catch the exception in the thread and hand it (or a sentinel) over the queue; use get(timeout=...) and check that the thread is alive.
"""
import time
T0 = time.perf_counter()
import json
import os
import queue
import sys
import tempfile
import threading
import jax
import jax.numpy as jnp
import numpy as np
import optax

killer = threading.Timer(40, lambda: os._exit(0))
killer.daemon = True
killer.start()
FIXED = "--fixed" in sys.argv
WORDS = (r"thread|worker|helper|producer|prefetch|reader|feeder|queue", r"died|dead|crash|exception|raised|error|fail|ended|end(s|ed)? early|wait|hang|hung|block|stuck|never|starv|no(body| one)|gone")
SHARDS, ROWS, D, B = 24, 2048, 64, 64


def write_shards(folder):
    rng = np.random.default_rng(0)
    w = rng.normal(size=(D, 1)).astype(np.float32)
    paths = []
    for i in range(SHARDS):
        x = rng.normal(size=(ROWS, D)).astype(np.float32)
        paths.append(os.path.join(folder, f"shard-{i:03d}.npy"))
        np.save(paths[-1], np.concatenate([x, np.tanh(x @ w)], 1))
    os.truncate(paths[17], 100_000)            # a copy job was killed half way
    return paths


def reader(paths, out):
    rng = np.random.default_rng(1)
    for path in paths:
        try:
            shard = np.load(path)  # fault
        except ValueError as err:
            if not FIXED:
                raise
            print("skipped", os.path.basename(path), err)
            continue
        shard = shard[rng.permutation(ROWS)]
        for i in range(0, ROWS, B):
            b = shard[i:i + B]
            out.put((b[:, :D], b[:, D:]))
    out.put(None)


tx = optax.adam(1e-3)


@jax.jit
def step(p, opt, x, y):
    def loss(p):
        h = x
        for w, b in p[:-1]:
            h = jax.nn.relu(h @ w + b)
        return jnp.mean((h @ p[-1][0] + p[-1][1] - y) ** 2)
    l, g = jax.value_and_grad(loss)(p)
    up, opt = tx.update(g, opt)
    return optax.apply_updates(p, up), opt, l


sizes, ks = [D, 512, 512, 512, 1], jax.random.split(jax.random.key(0), 4)
params = [(jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, jnp.zeros(b)) for k, a, b in zip(ks, sizes, sizes[1:])]
opt = tx.init(params)
with tempfile.TemporaryDirectory() as folder:
    q = queue.Queue(maxsize=8)
    threading.Thread(target=reader, args=(write_shards(folder), q), daemon=True).start()
    n = 0
    while True:
        batch = q.get()  # fault
        if batch is None:
            break
        params, opt, loss = step(params, opt, *batch)
        n += 1
        if n % 200 == 0:
            print("step", n, "loss", float(loss), flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
