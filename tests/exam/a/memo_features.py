"""A ranking server slowly eats the host's memory and is restarted by the orchestrator every few hours; the device memory is flat.

Truth: the feature function memoises its result for every query ever seen in a dict without bound (numpy arrays on the host), and nearly all queries are different, so the process grows with each request.
Advice: bound the cache (lru_cache with maxsize, an OrderedDict that evicts) or drop it.
"""
import time
T0 = time.perf_counter()
import collections
import json
import resource
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"memory|RSS|MB|MiB|GB|GiB", r"grow|leak|unbounded|accumul|cache|keep|kept|dict")
REQUESTS, CANDIDATES, DIM, CACHE_SIZE = 5000, 256, 128, 64

cache = collections.OrderedDict()


def features(query):
    """Hash character trigrams of the query against each candidate's slots."""
    if query in cache:
        return cache[query]
    codes = np.frombuffer(query.encode(), np.uint8).astype(np.uint64)
    grams = codes[:-2] * 65536 + codes[1:-1] * 256 + codes[2:]
    slots = (grams[:, None] * np.arange(1, CANDIDATES * DIM // 4, 8, dtype=np.uint64)) % 9973
    values = np.repeat(np.cos(slots.sum(axis=0)), 32)[: CANDIDATES * DIM]
    cache[query] = values.reshape(CANDIDATES, DIM).astype(np.float32)  # fault
    if FIXED and len(cache) > CACHE_SIZE:
        cache.popitem(last=False)
    return cache[query]


@jax.jit
def score(params, x):
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return jax.lax.top_k((hidden @ params["w2"])[:, 0], 10)


def traffic():
    rng = np.random.default_rng(0)
    words = ["".join(chr(97 + c) for c in rng.integers(26, size=6)) for _ in range(400)]
    for _ in range(REQUESTS):
        yield " ".join(words[i] for i in rng.integers(400, size=5))


k1, k2 = jax.random.split(jax.random.key(0))
params = {"w1": jax.random.normal(k1, (DIM, 512)) * 0.1, "b1": jnp.zeros(512), "w2": jax.random.normal(k2, (512, 1)) * 0.1}
latencies = []
for query in traffic():
    t = time.perf_counter()
    best, index = score(params, features(query))
    answer = np.asarray(index).tolist()
    latencies.append(time.perf_counter() - t)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"{REQUESTS} requests, p50 {1e3 * np.median(latencies):.2f} ms, p99 {1e3 * np.quantile(latencies, 0.99):.2f} ms, peak RSS {peak:.0f} MiB")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0 if FIXED else None}))
