"""A FastAPI service that ranks items for users. "p50 is 200 ms although the model's forward pass takes 5 ms."

Truth: get_ranker, a FastAPI dependency, is not cached: every request reads the checkpoint from disk and puts all weights on the device again.
Advice: load the weights once (at startup/lifespan, or functools.lru_cache on the dependency) and reuse them.
"""
import time
T0 = time.perf_counter()
import json
import os
import sys
import tempfile
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import uvicorn
from fastapi import Depends, FastAPI
from pydantic import BaseModel

FIXED = "--fixed" in sys.argv
WORDS = (r"load|read|disk|checkpoint|weights|transfer|host.to.device|device_put|upload|copied|copies|np\.load",
         r"every|each|again|repeat|per.request|per.call|times|same|once|outside")
LOST = []
PATH = os.path.join(tempfile.mkdtemp(), "ranker.npz")
rng = np.random.default_rng(0)
np.savez(PATH, items=rng.standard_normal((120_000, 128), np.float32), w1=rng.standard_normal((128, 512), np.float32) / 11,
         w2=rng.standard_normal((512, 128), np.float32) / 22)


@jax.jit
def rank(params, history):
    user = params["items"][history].mean(0)
    for _ in range(2):
        user = user + jax.nn.gelu(user @ params["w1"]) @ params["w2"]
    return jax.lax.top_k(params["items"] @ user, 20)


class Ranker:
    def __init__(self, path):
        with np.load(path) as f:  # fault
            self.params = {k: jnp.asarray(f[k]) for k in f.files}  # fault

    def __call__(self, history):
        scores, ids = rank(self.params, np.asarray(history, np.int32))
        return jax.device_get((scores, ids))


def load():
    t = time.perf_counter()
    ranker = Ranker(PATH)  # fault
    LOST.append(time.perf_counter() - t)
    return ranker


@lru_cache(maxsize=1)
def cached():
    return load()


def get_ranker():
    return load()  # fault


class Query(BaseModel):
    history: list[int]


app = FastAPI()


@app.post("/rank")
def post_rank(q: Query, ranker: Ranker = Depends(cached if FIXED else get_ranker)):
    scores, ids = ranker(q.history)
    return {"ids": ids.tolist(), "scores": scores.tolist()}


def ask(port, history):
    req = urllib.request.Request(f"http://127.0.0.1:{port}/rank", json.dumps({"history": history}).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(req))


server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
thread = threading.Thread(target=server.run, daemon=True)
thread.start()
while not server.started:
    time.sleep(0.02)
port = server.servers[0].sockets[0].getsockname()[1]
histories = [rng.integers(0, 120_000, 50).tolist() for _ in range(45)]
with ThreadPoolExecutor(1) as clients:
    answers = list(clients.map(lambda h: ask(port, h), histories))
server.should_exit = True
thread.join()
print(len(answers), "answers,", len(LOST), "loads")
print(json.dumps({"wall": time.perf_counter() - T0, "lost": sum(LOST[1:]) if not FIXED else None}))
