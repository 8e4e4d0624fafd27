"""The training job's memory climbs steadily from the first minute until the node's OOM killer ends it; the model is tiny and so is a batch.

Truth: the loader thread is faster than the training step and its queue has no maximum size, so decoded batches pile up in host memory.
Advice: give the queue a maxsize (a few batches): put() then makes the loader wait for training.
"""
import json
import queue
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"memory|rss|ram", r"grow|climb|leak|increas|pile|rise|rising|unbounded|accumulat|queue")
BATCHES = 160


def read_batches(out):
    rng = np.random.default_rng(0)
    shard = rng.integers(0, 255, size=(4096, 3072), dtype=np.uint8)
    for _ in range(BATCHES):
        rows = rng.integers(0, len(shard), 192)
        image = shard[rows].astype(np.float32) / 127.5 - 1.0
        out.put((image, image[:, :10].argmax(1)))  # fault
    out.put(None)


def loss_fn(params, image, label):
    h = jax.nn.relu(image @ params["in"])
    h = jax.nn.relu(h @ params["mid"])
    return optax.softmax_cross_entropy_with_integer_labels(h @ params["out"], label).mean()


def main():
    rng = np.random.default_rng(1)
    shapes = {"in": (3072, 256), "mid": (256, 256), "out": (256, 10)}
    params = {k: jnp.asarray(rng.standard_normal(s) / np.sqrt(s[0]), jnp.float32) for k, s in shapes.items()}
    tx = optax.sgd(1e-2, momentum=0.9)
    opt_state = tx.init(params)

    @jax.jit
    def step(params, opt_state, image, label):
        loss, grads = jax.value_and_grad(loss_fn)(params, image, label)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    ready = queue.Queue(maxsize=4 if FIXED else 0)  # fault
    threading.Thread(target=read_batches, args=(ready,), daemon=True).start()
    n, deepest = 0, 0
    while (item := ready.get()) is not None:
        params, opt_state, loss = step(params, opt_state, *item)
        n, deepest = n + 1, max(deepest, ready.qsize())
        if n % 40 == 0:
            print(f"step {n} loss {float(loss):.4f}")
    print("most batches waiting:", deepest)
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": None if not FIXED else 0}))


main()
