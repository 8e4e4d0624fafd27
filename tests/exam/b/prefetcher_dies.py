"""The nightly run stands still since step 45: it did not end with an error, no more log lines, no CPU use. Interrupting it shows the main
thread waiting in the prefetch iterator. It stops at the same step each night.

Truth: a broken record raised in the prefetch thread, the thread died without handing the exception over, and the main loop waits on the empty queue for ever.
Advice: catch in the thread, put the exception (or an end mark) into the queue and raise it in the consumer; get with a timeout; skip or repair the bad record.

Source: RadarML/red-rover#23.
"""
import json
import os
import queue
import sys
import threading
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"hang|stuck|stall|wait|no progress|blocked|stopped|standstill|for ever|forever", r"queue|loader|prefetch|thread|iterator|data|input|worker|exception")
STEPS, LAST = 80, [time.perf_counter()]


def watchdog():
    time.sleep(40 - (time.perf_counter() - START))
    now = time.perf_counter()
    print(json.dumps({"wall": round(now - START, 2), "lost": round(now - LAST[0], 2)}), flush=True)
    os._exit(0)


threading.Thread(target=watchdog, daemon=True).start()


def records():
    rng = np.random.default_rng(0)
    for number in range(STEPS):
        size = 64 * 64 if number != 45 else 64 * 61  # one truncated radar frame
        yield rng.normal(size=(32, size)).astype(np.float32)


def decode(raw):
    return raw.reshape(32, 64, 64)


class Prefetch:
    """Decodes the next batches in a thread."""

    def __init__(self, source, depth=4):
        self.queue = queue.Queue(depth)
        self.thread = threading.Thread(target=self.fill, args=(source,), daemon=True)
        self.thread.start()

    def fill(self, source):
        for raw in source:
            if FIXED:
                try:
                    self.queue.put(decode(raw))
                except ValueError as problem:
                    print("skipping a record:", problem)
            else:
                self.queue.put(decode(raw))  # fault
        self.queue.put(None)

    def __iter__(self):
        while (batch := self.queue.get()) is not None:  # fault
            yield batch


@jax.jit
def train_step(weights, frames):
    def loss_fn(w):
        hidden = jnp.tanh(jnp.einsum("bij,jk->bik", frames, w["encode"]))
        return jnp.mean((hidden @ w["decode"] - frames) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(weights)
    return jax.tree.map(lambda p, g: p - 0.5 * g, weights, grads), loss


key = jax.random.key(0)
weights = {"encode": 0.1 * jax.random.normal(key, (64, 128)), "decode": 0.1 * jax.random.normal(key, (128, 64))}
for step, frames in enumerate(Prefetch(records())):
    weights, loss = train_step(weights, frames)
    loss.block_until_ready()
    LAST[0] = time.perf_counter()
    if step % 10 == 0:
        print("step", step, "loss", float(loss), flush=True)
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
