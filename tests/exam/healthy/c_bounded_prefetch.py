"""A loader thread with a bounded queue and a clean stop, and early stopping. Structure: prefetch iterators of research repositories (e.g. of the haiku examples), rebuilt."""
import json
import queue
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
tx = optax.adam(1e-3)


def prefetched(source, depth=4):
    ready, stop = queue.Queue(depth), threading.Event()

    def work():
        for item in source:
            while not stop.is_set():
                try:
                    ready.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if stop.is_set():
                return
        ready.put(None)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            yield item
    finally:
        stop.set()
        thread.join()


def batches(x, y, epochs):
    for epoch in range(epochs):
        for rows in np.random.default_rng(epoch).permutation(len(x)).reshape(-1, 256):
            yield epoch, x[rows], y[rows]


def predict(p, x):
    return (jax.nn.silu(jax.nn.silu(x @ p["a"]) @ p["b"]) @ p["c"])[:, 0]


def loss_fn(p, x, y):
    return jnp.mean((predict(p, x) - y) ** 2)


@jax.jit
def step(params, opt_state, x, y):
    grads = jax.grad(loss_fn)(params, x, y)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state


def main():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((18_432, 48)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + 0.5 * rng.standard_normal(18_432)).astype(np.float32)
    x_val, y_val = jnp.asarray(x[16_384:]), jnp.asarray(y[16_384:])
    shapes = {"a": (48, 256), "b": (256, 256), "c": (256, 1)}
    params = {k: jnp.asarray(rng.standard_normal(s) / np.sqrt(s[0]), jnp.float32) for k, s in shapes.items()}
    opt_state, validate = tx.init(params), jax.jit(loss_fn)
    best, patience, last = np.inf, 3, 0
    stream = prefetched(batches(x[:16_384], y[:16_384], 60))
    for epoch, xb, yb in stream:
        if epoch != last:
            last, score = epoch, float(validate(params, x_val, y_val))
            print(f"epoch {epoch} validation {score:.4f}")
            best, patience = (score, 3) if score < best else (best, patience - 1)
            if not patience:
                break
        params, opt_state = step(params, opt_state, xb, yb)
    stream.close()
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0}))


main()
