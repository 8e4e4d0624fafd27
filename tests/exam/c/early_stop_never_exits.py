"""Training ends by early stopping and prints its best score, but the job never exits; the scheduler kills it hours later at the time limit.

Truth: after the early stop nobody takes batches any more, the loader's thread is blocked in put() on the full queue, and join() waits for that thread for ever.
Advice: tell the producer to stop (an Event and put with a timeout) or drain the queue before join(), or make the thread a daemon and do not join it.
"""
import json
import os
import queue
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"queue|put|producer|loader|thread|join", r"hang|hung|dead ?lock|stuck|wait|blocked|no progress|stall|never")


class Loader:
    def __init__(self, x, y, epochs):
        self.queue, self.stopped = queue.Queue(8), threading.Event()
        self.thread = threading.Thread(target=self.produce, args=(x, y, epochs))
        self.thread.start()

    def produce(self, x, y, epochs):
        for epoch in range(epochs):
            order = np.random.default_rng(epoch).permutation(len(x))
            for rows in order.reshape(-1, 256):
                while not self.stopped.is_set():
                    try:
                        self.queue.put((epoch, x[rows], y[rows]), timeout=0.2 if FIXED else None)  # fault
                        break
                    except queue.Full:
                        pass
        self.queue.put(None) if not self.stopped.is_set() else None

    def close(self):
        if FIXED:
            self.stopped.set()
        self.thread.join()  # fault


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (512, 512):
            x = nn.silu(nn.Dense(width)(x))
        return nn.Dense(1)(x)[:, 0]


def give_up(since):
    now = time.perf_counter()
    print(json.dumps({"wall": round(now - START, 2), "lost": round(now - since[0], 2)}), flush=True)
    os._exit(3)


def main():
    since = [time.perf_counter()]
    dog = threading.Timer(40, give_up, (since,))
    dog.daemon = True
    dog.start()
    rng = np.random.default_rng(1)
    x = rng.standard_normal((16_384, 32)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + 0.5 * rng.standard_normal(16_384).astype(np.float32)
    x_val, y_val = jnp.asarray(x[:2048]), jnp.asarray(y[:2048])
    model, tx = Net(), optax.adam(1e-3)
    params = jax.jit(model.init)(jax.random.key(0), x_val[:1])
    opt_state = tx.init(params)

    def loss_fn(params, x, y):
        return jnp.mean((model.apply(params, x) - y) ** 2)

    @jax.jit
    def step(params, opt_state, x, y):
        grads = jax.grad(loss_fn)(params, x, y)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state

    validate = jax.jit(loss_fn)
    loader = Loader(x[2048:], y[2048:], epochs=200)
    best, patience, last = np.inf, 2, 0
    while (item := loader.queue.get()) is not None:
        epoch, xb, yb = item
        if epoch != last:
            last, score = epoch, float(validate(params, x_val, y_val))
            print(f"epoch {epoch} validation {score:.4f}", flush=True)
            best, patience = (score, 2) if score < best else (best, patience - 1)
            if not patience:
                print("stopping early")
                break
        params, opt_state = step(params, opt_state, xb, yb)
    since[0] = time.perf_counter()
    loader.close()
    dog.cancel()
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0}))


main()
