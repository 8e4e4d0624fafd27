"""An asyncio ranking service: every request fetches the user's features over HTTP from a feature store, then scores 2,000 candidates on the device.
"It is async, 32 clients are served at once, and still throughput is that of a single one."

Truth: the coroutine calls urllib's urlopen, which blocks the event loop for the feature store's whole answer time: requests run one after another, and the device idles.
Advice: use an async HTTP client, or `await asyncio.to_thread(fetch, user)`.
"""
import time
T0 = time.perf_counter()
import asyncio
import concurrent.futures
import http.server
import json
import sys
import threading
import urllib.request
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"event loop|asyncio|coroutine|async", r"block|urlopen|synchron|fetch|to_thread|recv|http|socket")
N = 110


class Store(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.06)                      # the far end's answer time
        user = int(self.path.rsplit("/", 1)[1])
        body = np.random.default_rng(user).normal(size=64).astype(np.float32).tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
threading.Thread(target=store.serve_forever, daemon=True, name="feature-store").start()
key = jax.random.key(0)
items = jax.random.normal(key, (2000, 64))
w1, w2 = jax.random.normal(key, (128, 1024)) * 0.1, jax.random.normal(key, (1024, 1)) * 0.03


@jax.jit
def rank(user, items):
    x = jnp.concatenate([items, jnp.broadcast_to(user, items.shape)], -1)
    return jax.lax.top_k((jax.nn.gelu(x @ w1) @ w2)[:, 0], 10)[1]


device = concurrent.futures.ThreadPoolExecutor(1, "device")
spent = []


def fetch(user):
    t = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{store.server_port}/user/{user}") as r:  # fault
        data = np.frombuffer(r.read(), np.float32)  # fault
    spent.append(time.perf_counter() - t)
    return data


def score(features):
    return np.asarray(rank(features, items))


async def handle(user):
    if FIXED:
        features = await asyncio.to_thread(fetch, user)
    else:
        features = fetch(user)  # fault
    return await asyncio.get_running_loop().run_in_executor(device, score, features)


async def main():
    score(np.zeros(64, np.float32))           # warm-up before traffic
    asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(32, "io"))
    slots = asyncio.Semaphore(32)

    async def client(user):
        async with slots:
            return await handle(user)
    answers = await asyncio.gather(*(client(u) for u in range(N)))
    print("ranked", len(answers), "requests, checksum", int(np.sum(answers)))


asyncio.run(main())
store.shutdown()
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else sum(spent)}))
