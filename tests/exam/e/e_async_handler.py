"""A ranking service on FastAPI: features from the feature store over HTTP, scores from a small model. "With four clients it is no faster than with one, and the health check times out."

Truth: the endpoint is `async def` and makes a blocking HTTP call (requests.get), so the event loop stands still for each request and all the clients are served one after another.
Advice: make the endpoint a plain `def` (Starlette then runs it in its thread pool), or use an async client (httpx.AsyncClient) and await it.
"""
import time
T0 = time.perf_counter()
import json
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import jax
import jax.numpy as jnp
import numpy as np
import requests
import uvicorn
from fastapi import FastAPI

FIXED = "--fixed" in sys.argv
WORDS = (r"event.?loop|async|corout|await|one after another|seriali|blocking", r"block|wait|stand|stall|thread|http|socket|network|requests|seriali|sequential")


class Store(BaseHTTPRequestHandler):             # stands for the remote feature store: 60 ms a lookup
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(0.06)
        body = json.dumps([float(b % 7) for b in range(64)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *a):
        pass


store = ThreadingHTTPServer(("127.0.0.1", 0), Store)
threading.Thread(target=store.serve_forever, daemon=True).start()
STORE = f"http://127.0.0.1:{store.server_port}/"
k1, k2 = jax.random.split(jax.random.key(0))
ITEMS, W = jax.random.normal(k1, (2000, 64)), jax.random.normal(k2, (64, 64)) * 0.1


@jax.jit
def score(user):
    return jax.lax.top_k(ITEMS @ jnp.tanh(W @ user), 10)[1]


waited = []


def lookup(user):
    t = time.perf_counter()
    row = requests.get(STORE + str(user), timeout=5).json()  # fault
    waited.append(time.perf_counter() - t)
    return np.asarray(row, np.float32)


def rank_in_pool(user: int):
    return {"items": np.asarray(score(lookup(user))).tolist()}


async def rank(user: int):
    features = lookup(user)  # fault
    return {"items": np.asarray(score(features)).tolist()}


app = FastAPI()
app.get("/rank/{user}")(rank_in_pool if FIXED else rank)
score(np.zeros(64, np.float32)).block_until_ready()          # warm-up
sock = socket.socket()
sock.bind(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True).start()
while not server.started:
    time.sleep(0.02)
URL = f"http://127.0.0.1:{sock.getsockname()[1]}/rank/"


def client(c):
    with requests.Session() as s:
        return sum(len(s.get(URL + str(c * 100 + i)).json()["items"]) for i in range(32))


with ThreadPoolExecutor(4) as pool:
    print("items ranked", sum(pool.map(client, range(4))))
server.should_exit = True
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else sum(waited) * 0.75}))
