"""An online anomaly detector behind Starlette: a recurrent state on the device, donated to each step. "One bad reading from a sensor, and from then on every request is a 500 until we restart."

Truth: step() donates the state; when the score is not finite the handler raises before it stores the new state, so the global keeps a deleted (donated) array and all later requests fail with "Array has been deleted", which the catch-all turns into 500.
Advice: check the reading before the donated call, or store the new state at once (before anything can raise), or don't donate.
"""
import time
T0 = time.perf_counter()
import json
import socket
import sys
import threading
from functools import partial
import httpx
import jax
import jax.numpy as jnp
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

FIXED = "--fixed" in sys.argv


class BadReading(Exception):
    pass


WORDS = (r"donat|deleted", r"donat|deleted|state|buffer|again|re-?us|after")
D = 512
W = jax.random.normal(jax.random.key(0), (D, D)) / D ** 0.5


@partial(jax.jit, donate_argnums=0)
def step(state, reading):
    x = jnp.zeros((D,)).at[:reading.size].set(reading)
    expected, state = state["h"] @ W, {"h": jnp.tanh(state["h"] @ W + x), "n": state["n"] + 1}
    for _ in range(8):
        state["h"] = jnp.tanh(state["h"] @ W + x)
    return state, jnp.abs(expected - x).mean()


state, lock = {"h": jnp.zeros((256, D)), "n": jnp.zeros((), jnp.int32)}, threading.Lock()


def advance(reading):
    global state
    if FIXED and not np.isfinite(reading).all():
        raise BadReading("bad reading")
    with lock:
        new, score = step(state, reading)  # fault
        score = float(score)
        if not np.isfinite(score):
            raise BadReading("bad reading")  # fault
        state = new
    return score


def handle(request):
    try:
        reading = np.array([float(v) for v in request.query_params["v"].split(",")], np.float32)
        return JSONResponse({"score": advance(reading)})  # fault
    except BadReading as e:
        return JSONResponse({"error": str(e)}, 422)
    except Exception:
        return JSONResponse({"error": "internal"}, 500)


sock = socket.socket()
sock.bind(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(Starlette(routes=[Route("/score", handle)]), log_level="critical"))
threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True).start()
while not server.started:
    time.sleep(0.02)
codes = {}


def client():
    rng = np.random.default_rng(0)
    with httpx.Client(base_url=f"http://127.0.0.1:{sock.getsockname()[1]}", timeout=30) as c:
        for i in range(240):
            v = rng.standard_normal(8).round(3).tolist() if i != 60 else [float("nan")] * 8
            code = c.get("/score", params={"v": ",".join(map(str, v))}).status_code
            codes[code] = codes.get(code, 0) + 1
            time.sleep(0.01)                      # the sensor's period


thread = threading.Thread(target=client)
thread.start()
thread.join()
server.should_exit = True
print(codes)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
