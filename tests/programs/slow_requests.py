"""
A server of fast and slow requests, which says how long the slow ones took.

    python tests/programs/slow_requests.py

Prints its port, and the seconds of each slow request. A line on its standard input
ends it.
"""

import sys
import threading
import time

import jax
import jax.numpy as jnp
import uvicorn
from fastapi import FastAPI

import jaxmon
from jaxmon.asgi import Middleware


SLOW_SECONDS = 0.6

jaxmon.instrument(port=None)
app = FastAPI()
app.add_middleware(Middleware)


@jax.jit
def light(x):
    return x + 1


@jax.jit
def heavy(x):
    return jnp.tanh(x @ x) / x.shape[0]


SMALL, LARGE = jnp.ones(8), jnp.ones((200, 200))
light(SMALL).block_until_ready()
heavy(LARGE).block_until_ready()


@app.get("/fast")
def fast() -> float:
    return float(light(SMALL)[0])


@app.get("/slow")
def slow() -> None:
    began, x = time.perf_counter(), LARGE
    while time.perf_counter() < began + SLOW_SECONDS:
        x = heavy(x).block_until_ready()
    print(time.perf_counter() - began, flush=True)


def main() -> None:
    config = uvicorn.Config(app, port=0, log_level="critical", access_log=False)
    server = uvicorn.Server(config)
    serving = threading.Thread(target=server.run)
    serving.start()
    while not server.started:
        time.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    sys.stdin.readline()
    server.should_exit = True
    serving.join()
    jaxmon.uninstrument()


if __name__ == "__main__":
    main()
