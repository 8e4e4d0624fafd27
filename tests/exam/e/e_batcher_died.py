"""A micro-batching classifier: callers put requests on a queue and wait, one thread batches them for the model. "It stops answering after a while. No CPU use, no crash, the process is alive."

Truth: a request longer than MAX_LEN makes the padding raise in the batcher thread; the thread dies, nothing answers the futures any more, and all callers wait for ever.
Advice: refuse over-long input at the door, and catch exceptions in the batcher's loop and hand them to the futures (set_exception); wait with a timeout.
"""
import time
T0 = time.perf_counter()
import json
import os
import queue
import sys
import threading
from concurrent.futures import Future
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"thread|worker|helper|batcher|run_batches|future", r"died|dead|crash|exception|rais|ValueError|broadcast|ended|stopped|fail|error|wait|hang|never")
killer = threading.Timer(40, lambda: os._exit(0))
killer.daemon = True
killer.start()
MAX_LEN, BATCH, D = 64, 16, 256
k1, k2 = jax.random.split(jax.random.key(0))
EMB, OUT = jax.random.normal(k1, (5000, D)) * 0.1, jax.random.normal(k2, (D, 10))


@jax.jit
def classify(tokens, mask):
    x = EMB[tokens] * mask[..., None]
    att = jax.nn.softmax(jnp.where(mask[:, None], x @ x.swapaxes(1, 2), -1e9), -1) @ x
    return (att.sum(1) / mask.sum(1, keepdims=True) @ OUT).argmax(-1)


requests = queue.Queue()


def pad(rows):
    tokens, mask = np.zeros((BATCH, MAX_LEN), np.int32), np.zeros((BATCH, MAX_LEN), bool)
    mask[:, 0] = True
    for i, row in enumerate(rows):
        tokens[i, :len(row)] = row  # fault
        mask[i, :len(row)] = True
    return tokens, mask


def run_batches():
    while True:
        jobs = [requests.get()]
        deadline = time.monotonic() + 0.005
        while len(jobs) < BATCH and (left := deadline - time.monotonic()) > 0:
            try:
                jobs.append(requests.get(timeout=left))
            except queue.Empty:
                break
        tokens, mask = pad([row for row, _ in jobs])  # fault
        for (_, future), label in zip(jobs, np.asarray(classify(tokens, mask)).tolist()):
            future.set_result(label)


def predict(row):
    if FIXED and len(row) > MAX_LEN:
        return None                               # refused: too long
    future = Future()
    requests.put((row, future))
    return future.result()  # fault


def client(seed, counts):
    rng = np.random.default_rng(seed)
    for i in range(150):
        n = 80 if seed == 3 and i % 50 == 49 else int(rng.integers(3, MAX_LEN))
        counts[seed] += predict(rng.integers(0, 5000, n)) is not None  # fault
        time.sleep(0.01)                          # the user thinks


classify(*pad([])).block_until_ready()
threading.Thread(target=run_batches, daemon=True).start()
counts = [0] * 6
clients = [threading.Thread(target=client, args=(s, counts)) for s in range(6)]
for c in clients:
    c.start()
for c in clients:
    c.join()  # fault
print("answered", sum(counts))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
