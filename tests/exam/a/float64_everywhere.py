"""After 64-bit mode had been enabled for the timestamps, the model of the time-series forecaster trains about half as fast as before, with the same results.

Truth: with jax_enable_x64 the initial parameters and the numpy data are float64, so all matrix products run in double precision, which nothing in the model needs.
Advice: give dtype=jnp.float32 to the parameters and cast the data to float32; keep int64 for the timestamps only (or disable x64).
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax

jax.config.update("jax_enable_x64", True)  # nanosecond timestamps need int64  # fault
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"float64|double|64.?bit|x64|f64", r"float32|cast|precision|dtype|half|slow|f32|single")
SERIES, WINDOW, HIDDEN, BATCH, STEPS = 40, 96, 768, 256, 130
DTYPE = np.float32 if FIXED else np.float64


def load_series():
    rng = np.random.default_rng(0)
    stamps = 1_700_000_000_000_000_000 + np.arange(6000) * 60_000_000_000
    hours = (stamps // 1_000_000_000 % 86400) / 3600
    values = np.sin(2 * np.pi * hours / 24)[:, None] * rng.uniform(0.5, 2, SERIES) + 0.1 * rng.standard_normal((6000, SERIES))
    return stamps, values.astype(DTYPE)  # fault


def forecast(params, x):
    h = jax.nn.gelu(x @ params["in"])
    h = h + jax.nn.gelu(h @ params["mid"])
    return h @ params["out"]


tx = optax.adam(1e-3)


@jax.jit
def train_step(params, opt, x, y):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((forecast(p, x) - y) ** 2))(params)
    updates, opt = tx.update(grads, opt)
    return optax.apply_updates(params, updates), opt, loss


def init(dtype):
    k = jax.random.split(jax.random.key(0), 3)
    shapes = {"in": (WINDOW, HIDDEN), "mid": (HIDDEN, HIDDEN), "out": (HIDDEN, 1)}
    return {n: jax.random.normal(key, s, dtype=dtype) * s[0] ** -0.5 for key, (n, s) in zip(k, shapes.items())}  # fault


def train(params, values, count, dtype):
    rng = np.random.default_rng(1)
    opt, times = tx.init(params), []
    for _ in range(count):
        column = rng.integers(SERIES, size=(BATCH, 1))
        start = rng.integers(len(values) - WINDOW - 1, size=(BATCH, 1))
        window = values[start + np.arange(WINDOW + 1), column].astype(dtype)
        t = time.perf_counter()
        params, opt, loss = train_step(params, opt, window[:, :-1], window[:, -1:])
        loss.block_until_ready()
        times.append(time.perf_counter() - t)
    return float(loss), times


stamps, values = load_series()
last = jnp.asarray(stamps)[-1]
loss, times = train(init(DTYPE), values, STEPS, DTYPE)
print(f"up to {int(last)} ns, loss {loss:.5f}, {1e3 * np.median(times):.1f} ms per step")
lost = 0.0
if not FIXED:  # the yardstick: the same step in single precision
    _, single = train(init(np.float32), values, 20, np.float32)
    lost = (np.median(times) - np.median(single)) * STEPS
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(float(lost), 3)}))
