"""Ranking service on asyncio. "Eight clients get no more throughput than one, and the machine idles."

Truth: the coroutine reads the feature store with a synchronous call, which blocks the event loop: the other requests and the model wait meanwhile.
Advice: await the store (asynchronous client or asyncio.to_thread), so that the fetches of different requests overlap.
"""
import time
T0 = time.perf_counter()
import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"block|synchron|wait|sleep|fetch|store|serial|idle|starv|host", r"async|event loop|coroutine|overlap|to_thread|concurren|thread|prefetch|parallel|background")
FEATURES, ITEMS = 256, 4096


class FeatureStore:
    """Stands for a key-value store at the other end of the network."""
    def __init__(self):
        self.users = np.random.default_rng(0).normal(size=(500, FEATURES)).astype(np.float32)
        self.spent = 0.0

    def get(self, user):
        t = time.perf_counter()
        time.sleep(0.05)  # round trip
        self.spent += time.perf_counter() - t
        return self.users[user]


@jax.jit
def rank(weights, items, user):
    h = jnp.tanh(items @ weights["a"] * (user @ weights["u"]))
    return jax.lax.top_k(jnp.tanh(h @ weights["b"]).sum(-1), 10)


async def handle(user, store, model, device):
    if FIXED:
        features = await asyncio.to_thread(store.get, user)
    else:
        features = store.get(user)  # fault
    scores, ids = await asyncio.get_running_loop().run_in_executor(device, model, features)
    return ids.tolist()


async def client(n, store, model, device):
    return [await handle((n * 31 + i * 7) % 500, store, model, device) for i in range(15)]


async def serve(store, model, device):
    return await asyncio.gather(*(client(n, store, model, device) for n in range(8)))


def main():
    k = jax.random.split(jax.random.key(0), 4)
    weights = {"a": jax.random.normal(k[0], (FEATURES, 64)) * 0.1, "u": jax.random.normal(k[1], (FEATURES, 64)) * 0.1,
               "b": jax.random.normal(k[2], (64, 64)) * 0.1}
    items = jax.random.normal(k[3], (ITEMS, FEATURES))
    model = lambda user: jax.device_get(rank(weights, items, user))
    model(np.zeros(FEATURES, np.float32))  # warm-up before the port opens
    store = FeatureStore()
    t = time.perf_counter()
    with ThreadPoolExecutor(1) as device:
        answers = asyncio.run(serve(store, model, device))
    print(f"{sum(map(len, answers))} requests in {time.perf_counter() - t:.2f} s")
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0 if FIXED else store.spent}))


main()
