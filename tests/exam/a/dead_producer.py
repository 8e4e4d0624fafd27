"""Training stops in the middle of the first epoch: no error, no more log lines, no CPU use. It is always at about the same place.

Truth: the producer of the input queue runs in a thread pool and died of a bad record (its exception sits unseen in the future), so the training loop waits forever in queue.get().
Advice: put a sentinel / the exception into the queue (try/finally), use get with a timeout, check the future's result; skip or repair the bad record.
"""
import time
T0 = time.perf_counter()
import concurrent.futures
import json
import os
import queue
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"hang|hung|stuck|stall|wait|no progress|block|stopped", r"queue|get\b|thread|producer|loader|lock|input")
ROWS, FIELDS, BATCH, STEPS = 64000, 40, 128, 500
last_progress = time.perf_counter()


def watchdog():
    time.sleep(40)
    now = time.perf_counter()
    print(json.dumps({"wall": round(now - T0, 3), "lost": round(now - last_progress, 3)}), flush=True)
    os._exit(0)


threading.Thread(target=watchdog, daemon=True).start()


def lines():
    rng = np.random.default_rng(0)
    for row in range(ROWS):
        values = rng.standard_normal(FIELDS)
        text = ",".join(f"{v:.4f}" for v in values) + f",{values[:8].sum():.4f}"
        yield text.replace("0.", "0;", 1) if row == 31400 else text


def parse(line):
    return [float(field) for field in line.split(",")]  # fault


def produce(out):
    batch = []
    for line in lines():
        try:
            batch.append(parse(line))
        except ValueError:
            if not FIXED:
                raise
            continue
        if len(batch) == BATCH:
            out.put(np.asarray(batch, np.float32))
            batch = []
    out.put(None)


@jax.jit
def train_step(w, rows):
    x, y = rows[:, :-1], rows[:, -1]

    def loss_fn(w):
        hidden = jnp.tanh(x @ w["in"])
        return jnp.mean(((hidden @ w["out"])[:, 0] - y) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(w)
    return jax.tree.map(lambda p, g: p - 0.02 * g, w, grads), loss


batches = queue.Queue(maxsize=8)
pool = concurrent.futures.ThreadPoolExecutor(1)
future = pool.submit(produce, batches)  # fault
k1, k2 = jax.random.split(jax.random.key(0))
w = {"in": jax.random.normal(k1, (FIELDS, 2048)) * 0.1, "out": jax.random.normal(k2, (2048, 1)) * 0.02}
step = 0
while (rows := batches.get()) is not None:  # fault
    w, loss = train_step(w, rows)
    step += 1
    if step % 50 == 0:
        print(f"step {step}: loss {float(loss):.4f}", flush=True)
    last_progress = time.perf_counter()
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}), flush=True)
os._exit(0)
