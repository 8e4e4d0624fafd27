"""
A small model of Flax behind FastAPI, Flask and gRPC.

    python tests/programs/loaded.py

All of them in one process: prints their ports and the agent's address as JSON. A line
on its standard input ends it. Imported by workers of uvicorn, it is FastAPI alone.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flask
import grpc
import jax
import jax.numpy as jnp
import numpy as np
import uvicorn
from fastapi import FastAPI
from flax import linen as nn
from pydantic import BaseModel
from starlette.responses import StreamingResponse
from werkzeug.serving import WSGIRequestHandler, make_server

import jaxmon
from jaxmon import asgi, wsgi
from jaxmon.grpc import Interceptor


THREE = __name__ == "__main__"
agent = jaxmon.instrument(port=0 if THREE else None, socket=not THREE)


class Perceptron(nn.Module):  # type: ignore[misc]  # Flax is not typed here
    @nn.compact
    def __call__(self, x):
        """Return one number for all of *x*."""
        return nn.Dense(1)(jnp.tanh(nn.Dense(8)(x[:, None]))).sum()


PERCEPTRON = Perceptron()
WEIGHTS = PERCEPTRON.init(jax.random.key(0), np.ones(3, np.float32))


@jax.jit
def model(weights, x):
    return PERCEPTRON.apply(weights, x)


def predict(length: int) -> float:
    return float(model(WEIGHTS, np.ones(length, np.float32)))


# Before there are requests: what they compile is what they ask for.
predict(3)


# --- FastAPI ----------------------------------------------------------------------


app = FastAPI()
app.add_middleware(asgi.Middleware)


class Body(BaseModel):
    """What is sent to ``/score``."""

    length: int


@app.get("/predict/{length}")
def _predict(length: int) -> float:
    return predict(length)


@app.post("/score")
def _score(body: Body) -> float:
    return predict(body.length)


@app.get("/fail")
async def _fail() -> None:
    raise LookupError


@app.get("/stream/{number}")
def _stream(number: int) -> StreamingResponse:
    return StreamingResponse(f"{predict(3)}\n" for _ in range(number))


@app.get("/endless")
def _endless() -> StreamingResponse:
    return StreamingResponse(endless())


def endless() -> Iterator[str]:
    """Yield tokens until the client leaves."""
    while True:
        yield "token "
        time.sleep(0.01)


# --- Flask ------------------------------------------------------------------------


class Quiet(WSGIRequestHandler):
    def log(self, *_: Any, **__: Any) -> None:
        """Say nothing."""


def site() -> flask.Flask:
    made = flask.Flask("site")
    made.add_url_rule(
        "/f/predict/<int:length>", "predict", lambda length: str(predict(length))
    )
    made.add_url_rule("/f/fail", "fail", lambda: str(int("x")))
    made.add_url_rule("/f/endless", "endless", lambda: flask.Response(endless()))
    made.add_url_rule(
        "/f/score",
        "score",
        lambda: str(predict(flask.request.get_json()["length"])),
        methods=["POST"],
    )
    return made


# --- gRPC -------------------------------------------------------------------------


def run(request: bytes, context: Any) -> bytes:
    """Call the model; abort for garbage; wait for the client to leave for 0."""
    try:
        length = int(request)
    except ValueError:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
    while not length and context.is_active():
        time.sleep(0.01)
    if length < 0:
        raise LookupError
    return str(predict(length or 3)).encode()


def stream(request: bytes, _: Any) -> Iterator[bytes]:
    """Call the model several times."""
    for _one in range(int(request)):
        yield str(predict(3)).encode()


def three() -> None:
    """Serve until a line comes."""
    config = uvicorn.Config(app, port=0, log_level="critical", access_log=False)
    server = uvicorn.Server(config)
    fast = threading.Thread(target=server.run)
    fast.start()
    made = site()
    made.wsgi_app = wsgi.WsgiMiddleware(made.wsgi_app)  # type: ignore[method-assign]
    web = make_server("127.0.0.1", 0, made, threaded=True, request_handler=Quiet)
    slow = threading.Thread(target=web.serve_forever)
    slow.start()
    with ThreadPoolExecutor(8) as pool:
        calls = grpc.server(pool, interceptors=[Interceptor()])
        methods = {
            "Run": grpc.unary_unary_rpc_method_handler(run),
            "Stream": grpc.unary_stream_rpc_method_handler(stream),
        }
        handler = grpc.method_handlers_generic_handler("models.Predict", methods)
        calls.add_generic_rpc_handlers((handler,))
        port = calls.add_insecure_port("127.0.0.1:0")
        calls.start()
        while not server.started:
            time.sleep(0.01)
        ports = {
            "fastapi": server.servers[0].sockets[0].getsockname()[1],
            "flask": web.server_port,
            "grpc": port,
            "agent": agent.url,
        }
        print(json.dumps(ports), flush=True)
        sys.stdin.readline()
        calls.stop(None).wait()
    server.should_exit = True
    web.shutdown()
    fast.join()
    slow.join()
    web.server_close()
    jaxmon.uninstrument()


if __name__ == "__main__":
    three()
