"""An autoencoder fed by a loader thread, with early stopping. "It prints 'early stop' and then the job sits there until the scheduler kills it."

Truth: on early stopping the main thread joins the loader thread, which is blocked in put() on the full queue that nobody empties any more; both wait for ever.
Advice: drain the queue while stopping, or put with a timeout and look at the stop event, before joining.
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
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"hang|deadlock|stuck|blocked|wait|stall", r"queue|put|join|thread")
killer = threading.Timer(40, lambda: os._exit(0))
killer.daemon = True
killer.start()


class Loader:
    """Builds batches ahead of the training in a thread of its own."""

    def __init__(self, batch=256, ahead=4):
        self.q, self.stop = queue.Queue(ahead), threading.Event()
        self.batch, self.rng = batch, np.random.default_rng(0)
        self.basis = self.rng.normal(size=(8, 784)).astype(np.float32)
        self.thread = threading.Thread(target=self._work, name="loader")
        self.thread.start()

    def _work(self):
        while not self.stop.is_set():
            code = self.rng.normal(size=(self.batch, 8)).astype(np.float32)
            item = np.tanh(code @ self.basis)
            if not FIXED:
                self.q.put(item)  # fault
                continue
            while not self.stop.is_set():
                try:
                    self.q.put(item, timeout=0.2)
                    break
                except queue.Full:
                    pass

    def __next__(self):
        return self.q.get()

    def close(self):
        self.stop.set()
        self.thread.join()  # fault


def init(key):
    sizes = [784, 512, 256, 8, 256, 512, 784]
    return [(jax.random.normal(k, (a, b)) / a ** 0.5, jnp.zeros(b))
            for k, a, b in zip(jax.random.split(key, 6), sizes, sizes[1:])]


def net(params, x):
    for w, b in params[:-1]:
        x = jax.nn.gelu(x @ w + b)
    return x @ params[-1][0] + params[-1][1]


tx = optax.adam(1e-3)


@jax.jit
def step(params, opt, x):
    loss, g = jax.value_and_grad(lambda p: jnp.mean((net(p, x) - x) ** 2))(params)
    up, opt = tx.update(g, opt)
    return optax.apply_updates(params, up), opt, loss


loader = Loader()
params = init(jax.random.PRNGKey(0))
opt, best, bad = tx.init(params), np.inf, 0
for epoch in range(200):
    total = 0.0
    for _ in range(40):
        params, opt, loss = step(params, opt, next(loader))
        total = total + loss
    total = float(total) / 40
    bad = 0 if total < best - 0.01 else bad + 1
    best = min(best, total)
    if bad >= 4:
        print(f"early stop at epoch {epoch}, loss {total:.4f}", flush=True)
        break
time.sleep(0.3)                                   # the final report is written
loader.close()  # fault
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
