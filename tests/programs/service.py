"""
A model server for the ground-truth test of requests: Starlette on uvicorn.

It keeps its own books: what the Python body of the model traced, by length. A line on
its standard input makes it print them and the agent's figures as JSON, and end.
"""

import asyncio
import json
import sys
import threading
import time
from collections import Counter

import jax
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route

import jaxmon
from jaxmon.asgi import Middleware


agent = jaxmon.instrument(port=0, socket=False)
traced: Counter[int] = Counter()


@jax.jit
def model(x):
    traced[len(x)] += 1
    return (x * 2).sum()


def answer(length):
    return float(model(np.ones(length, np.float32)))


def predict(request):
    """Answer on a thread of Starlette's pool, after as long as the client asks for."""
    time.sleep(int(request.query_params.get("ms", "0")) / 1000)
    return PlainTextResponse(str(answer(request.path_params["length"])))


async def gather(request):
    """Answer on threads of asyncio, and fail on request."""
    length = request.path_params["length"]
    if "fail" in request.query_params:
        raise ValueError(length)
    return PlainTextResponse(str(await asyncio.to_thread(answer, length)))


async def stream(request):
    """Answer in pieces, the model called for the last."""

    async def pieces():
        yield "one\n"
        yield f"{await asyncio.to_thread(answer, request.path_params['length'])}\n"

    return StreamingResponse(pieces())


app = Starlette(
    routes=[
        Route("/predict/{length:int}", predict),
        Mount(
            "/v2",
            routes=[
                Route("/gather/{length:int}", gather),
                Route("/stream/{length:int}", stream),
            ],
        ),
    ]
)
app.add_middleware(Middleware)

server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))


def control():
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    print(port, flush=True)
    sys.stdin.readline()
    samples = {
        series: value for family in agent.collect() for series, value in family.samples
    }
    print(json.dumps({"traced": dict(traced), "samples": samples}), flush=True)
    server.should_exit = True


threading.Thread(target=control, daemon=True).start()
server.run()
