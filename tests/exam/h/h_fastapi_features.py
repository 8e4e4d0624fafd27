"""A FastAPI service which scores users: fetches features from a feature store over HTTP, then runs a JAX model. "Throughput does not grow with the number of clients."

Truth: the handler is `async def` but fetches the features with blocking urllib; the event loop stands still, so requests run one after another.
Advice: use an async HTTP client, or asyncio.to_thread, or a plain `def` handler (FastAPI runs it in its thread pool).
"""
import time
T0 = time.perf_counter()
import json
import socket
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fastapi
import jax
import jax.numpy as jnp
import numpy as np
import uvicorn

FIXED = "--fixed" in sys.argv
WORDS = (r"event.?loop|async", r"block|stall|held|hold|synchron|stands|busy|occup")
CLIENTS, REQUESTS, LATENCY = 8, 120, 0.09


class FeatureStore(BaseHTTPRequestHandler):
    def do_GET(self):
        user = int(self.path.rsplit("/", 1)[1])
        time.sleep(LATENCY)                       # the store's own latency
        body = json.dumps(np.random.default_rng(user).normal(size=64).round(4).tolist()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *a):
        pass


store = ThreadingHTTPServer(("127.0.0.1", 0), FeatureStore)
store.daemon_threads = True
threading.Thread(target=store.serve_forever, daemon=True).start()
URL = f"http://127.0.0.1:{store.server_address[1]}/features/"
weights = [jax.random.normal(k, (1024, 1024)) / 32 for k in jax.random.split(jax.random.PRNGKey(0), 6)]


@jax.jit
def score_fn(ws, feats):
    x = jnp.tile(feats, 16)[None] * jnp.linspace(0.9, 1.1, 96)[:, None]     # test-time ensemble
    for w in ws:
        x = jnp.tanh(x @ w)
    return jax.nn.sigmoid(x.mean())


app, waited = fastapi.FastAPI(), []


def fetch(user):
    t = time.perf_counter()
    with urllib.request.urlopen(URL + str(user)) as r:  # fault
        feats = np.asarray(json.load(r), np.float32)
    waited.append(time.perf_counter() - t)
    return feats


async def score_async(user: int):
    feats = fetch(user)  # fault
    return {"user": user, "score": float(score_fn(weights, feats))}


def score_sync(user: int):
    feats = fetch(user)
    return {"user": user, "score": float(score_fn(weights, feats))}


app.get("/score/{user}")(score_sync if FIXED else score_async)
score_fn(weights, np.zeros(64, np.float32)).block_until_ready()             # warm-up
sock = socket.socket()
sock.bind(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
thread.start()
while not server.started:
    time.sleep(0.05)


def client(user):
    with urllib.request.urlopen(f"http://127.0.0.1:{sock.getsockname()[1]}/score/{user}") as r:
        return json.load(r)["score"]


with ThreadPoolExecutor(CLIENTS) as pool:
    scores = list(pool.map(client, range(REQUESTS)))
server.should_exit = True
thread.join()
print("mean score", sum(scores) / len(scores))
print(json.dumps({"wall": time.perf_counter() - T0,
                  "lost": None if FIXED else sum(waited) * (1 - 1 / CLIENTS)}))
