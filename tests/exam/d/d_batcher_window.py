"""Similarity service with a micro-batcher in threads. "Every request takes more than 60 ms, though the model needs 5."

Truth: the batcher waits up to 60 ms for a batch of 16, but there are three clients, each with one request at a time: the batch never fills and the whole window is waited for each time.
Advice: dispatch as soon as the queue is empty (or a window of 1-2 ms, or a maximal batch that fits the load).
"""
import time
T0 = time.perf_counter()
import json
import queue
import sys
import threading
from concurrent.futures import Future

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"wait|idle|window|queue|timeout|starv|input|host|data", r"batch|fill|request|queue|timeout|window|get")
FULL, WINDOW = 16, 0.001 if FIXED else 0.060
waited = [0.0]


@jax.jit
def nearest(base, weights, queries):
    h = jnp.tanh(queries @ weights)
    return jnp.argmax(h @ base.T, axis=-1)


def gather(requests):
    batch = [requests.get()]
    deadline = time.perf_counter() + WINDOW
    while len(batch) < FULL:
        left = deadline - time.perf_counter()
        t = time.perf_counter()
        try:
            batch.append(requests.get(timeout=max(left, 0)))  # fault
        except queue.Empty:
            waited[0] += time.perf_counter() - t
            break
    return batch


def serve(requests, base, weights):
    padded = np.zeros((FULL, weights.shape[0]), np.float32)
    while True:
        batch = gather(requests)  # fault
        for row, (query, _) in enumerate(batch):
            padded[row] = query
        answers = np.asarray(nearest(base, weights, padded.copy()))
        for answer, (_, future) in zip(answers, batch):
            future.set_result(int(answer))


def client(n, requests, answers):
    rng = np.random.default_rng(n)
    for _ in range(80):
        future = Future()
        requests.put((rng.normal(size=128).astype(np.float32), future))
        answers.append(future.result())


def main():
    k = jax.random.split(jax.random.key(0), 2)
    base, weights = jax.random.normal(k[0], (20_000, 256)), jax.random.normal(k[1], (128, 256)) * 0.1
    nearest(base, weights, np.zeros((FULL, 128), np.float32)).block_until_ready()
    requests, answers = queue.Queue(), []
    threading.Thread(target=serve, args=(requests, base, weights), daemon=True).start()
    t = time.perf_counter()
    clients = [threading.Thread(target=client, args=(n, requests, answers)) for n in range(3)]
    [c.start() for c in clients]
    [c.join() for c in clients]
    print(f"{len(answers)} answers in {time.perf_counter() - t:.2f} s")
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": waited[0]}))


main()
