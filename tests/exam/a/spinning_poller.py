"""Since metrics are written by a background thread, the small control policy trains several times slower per step; the thread itself writes only a line every few seconds.

Truth: the metrics thread polls a list in a busy loop without sleeping, so it competes for the GIL and the dispatch of each step waits for the interpreter's switch interval.
Advice: use queue.Queue and a blocking get (or sleep / wait on an Event) in the thread.
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

FIXED = "--fixed" in sys.argv
WORDS = (r"thread|GIL|interpreter", r"busy|spin|poll|contention|compet|GIL|cpu|loop|block")
STEPS, BATCH = 4000, 32


class MetricsWriter(threading.Thread):
    def __init__(self, path):
        super().__init__(name="metrics-writer", daemon=True)
        self.path, self.pending, self.inbox = path, [], queue.Queue()
        self.start()

    def put(self, record):
        (self.inbox.put if FIXED else self.pending.append)(record)

    def run(self):
        with open(self.path, "w") as out:
            while True:
                if FIXED:
                    record = self.inbox.get()
                else:
                    if not self.pending:  # fault
                        continue  # fault
                    record = self.pending.pop(0)
                if record is None:
                    return
                out.write(json.dumps(record) + "\n")


def loss_fn(params, x, target):
    h = jnp.tanh(x @ params["w1"] + params["b1"])
    return jnp.mean((h @ params["w2"] - target) ** 2)


@jax.jit
def train_step(params, x, target):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, target)
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), loss


rng = np.random.default_rng(0)
k1, k2 = jax.random.split(jax.random.key(0))
params = {"w1": jax.random.normal(k1, (12, 64)) * 0.3, "b1": jnp.zeros(64), "w2": jax.random.normal(k2, (64, 4)) * 0.1}


def steps(params, count, writer=None):
    t = time.perf_counter()
    for step in range(count):
        x = rng.standard_normal((BATCH, 12), dtype=np.float32)
        params, loss = train_step(params, x, np.cos(x[:, :4]))
        value = float(loss)
        if writer is not None and step % 500 == 499:
            writer.put({"step": step, "loss": value})
            print(f"step {step + 1}: {value:.4f}", flush=True)
    return params, (time.perf_counter() - t) / count


params, _ = steps(params, 5)
params, alone = steps(params, 300)
with tempfile.TemporaryDirectory() as tmp:
    writer = MetricsWriter(os.path.join(tmp, "metrics.jsonl"))  # fault
    params, busy = steps(params, STEPS, writer)
    writer.put(None)
    writer.join()
lost = max(0.0, busy - alone) * STEPS
print(f"{1e3 * alone:.2f} ms per step before, {1e3 * busy:.2f} ms with the writer")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0 if FIXED else round(lost, 3)}))
