"""Coarse-to-fine inversion for a conductivity field: one compiled solver per grid (bounded lru_cache), eager set-up code, a background thread that writes checkpoints with a latest-only slot."""
import time
T0 = time.perf_counter()
import json
import os
import tempfile
import threading
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import optax


def solve(logk, source, n):
    k, h2 = jnp.exp(logk), 1.0 / n ** 2

    def sweep(u, _):
        pad = jnp.pad(u, 1)
        around = pad[2:, 1:-1] + pad[:-2, 1:-1] + pad[1:-1, 2:] + pad[1:-1, :-2]
        return 0.2 * u + 0.8 * (around + h2 * source / k) / 4, None

    return jax.lax.scan(sweep, jnp.zeros((n, n)), None, length=4 * n)[0]


@lru_cache(maxsize=4)
def stepper(n):
    tx = optax.adam(0.02)

    def loss_fn(logk, source, observed):
        smooth = jnp.mean(jnp.diff(logk, axis=0) ** 2) + jnp.mean(jnp.diff(logk, axis=1) ** 2)
        return 1e4 * jnp.mean((solve(logk, source, n) - observed) ** 2) + 0.1 * smooth

    def step(logk, opt, source, observed):
        loss, g = jax.value_and_grad(loss_fn)(logk, source, observed)
        up, opt = tx.update(g, opt)
        return optax.apply_updates(logk, up), opt, loss

    return tx, jax.jit(step, donate_argnums=(0, 1)), jax.jit(lambda logk, source: solve(logk, source, n))


class Saver:
    """Writes only the latest state; a slow disk never holds up the inversion."""

    def __init__(self, folder):
        self.folder, self.slot, self.cond, self.closed, self.written = folder, None, threading.Condition(), False, 0
        self.thread = threading.Thread(target=self.run, name="saver")
        self.thread.start()

    def save(self, name, array):
        with self.cond:
            self.slot = (name, array)
            self.cond.notify()

    def run(self):
        while True:
            with self.cond:
                self.cond.wait_for(lambda: self.slot is not None or self.closed)
                if self.slot is None:
                    return
                (name, array), self.slot = self.slot, None
            np.save(os.path.join(self.folder, name), np.asarray(array))
            self.written += 1

    def close(self):
        with self.cond:
            self.closed = True
            self.cond.notify()
        self.thread.join()


def truth_on(n):
    y, x = jnp.meshgrid(jnp.linspace(0, 1, n), jnp.linspace(0, 1, n), indexing="ij")
    blob = lambda a, b, s: jnp.exp(-((x - a) ** 2 + (y - b) ** 2) / s)
    return 1.2 * blob(0.3, 0.4, 0.02) - 0.8 * blob(0.7, 0.6, 0.03), 50 * (1 + blob(0.5, 0.5, 0.1))


with tempfile.TemporaryDirectory() as folder:
    saver, logk = Saver(folder), jnp.zeros((16, 16))
    for cycle, n in enumerate((16, 24, 32, 24, 32)):
        logk = jax.image.resize(logk, (n, n), "linear")
        tx, step, forward = stepper(n)
        true, source = truth_on(n)
        observed, opt, losses = forward(true, source), tx.init(logk), []
        for i in range(60):
            logk, opt, loss = step(logk, opt, source, observed)
            losses.append(loss)
        saver.save(f"{cycle}-{n}.npy", jnp.copy(logk))
        print("grid %d misfit %.4f -> %.4f" % (n, float(losses[0]), float(losses[-1])))
    saver.close()
print(stepper.cache_info(), saver.written, "checkpoints")
print(json.dumps({"wall": time.perf_counter() - T0}))
