"""Entropic optimal transport by Sinkhorn, in an accuracy study over tolerances. "The loose tolerances take a moment, then it never comes back, all cores at 100 %."

Truth: the while_loop runs until the marginal error is below 1e-7 (then 1e-9), which float32 cannot reach (rounding keeps it above that), and there is no limit of iterations.
Advice: a tolerance above float32's resolution (1e-5) and a maximum number of iterations in the loop's condition (or float64).
"""
import time
T0 = time.perf_counter()
import json
import os
import sys
import threading
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

FIXED = "--fixed" in sys.argv
WORDS = (r"while|loop|converge|iterat|tolerance|running|comput|device|execut|sinkhorn", r"hang|stuck|never|endless|infinite|not (end|finish|return|converge|terminat|come)|wait|without end|still|block|no (limit|bound)|unbounded")
timer = threading.Timer(40 - (time.perf_counter() - T0), lambda: os._exit(0))
timer.daemon = True
timer.start()
N = 700
TOLS = (1e-2, 1e-3, 1e-4, 1e-5) if FIXED else (1e-3, 1e-5, 1e-7, 1e-9)  # fault


@jax.jit
def sinkhorn(x, y, eps, tol):
    cost = jnp.sum((x[:, None] - y[None]) ** 2, -1)
    log_a = jnp.full(N, -jnp.log(N))

    def cond(c):
        f, g, err, it = c
        return (err > tol) & (it < 5000) if FIXED else err > tol  # fault

    def body(c):
        f, g, _, it = c
        f = eps * (log_a - logsumexp((g[None] - cost) / eps, axis=1))
        g = eps * (log_a - logsumexp((f[:, None] - cost) / eps, axis=0))
        row = jnp.exp(logsumexp((f[:, None] + g[None] - cost) / eps, axis=1))
        return f, g, jnp.sum(jnp.abs(row - 1.0 / N)), it + 1
    f, g, err, it = jax.lax.while_loop(cond, body, (jnp.zeros(N), jnp.zeros(N), jnp.inf, 0))  # fault
    plan = jnp.exp((f[:, None] + g[None] - cost) / eps)
    return jnp.sum(plan * cost), err, it


@jax.jit
def clouds(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (N, 3)), 0.5 * jax.random.normal(b, (N, 3)) + 1.0


pairs = [clouds(key) for key in jax.random.split(jax.random.key(0), 20)]
for tol in TOLS:
    results = [sinkhorn(x, y, 0.1, tol) for x, y in pairs]  # fault
    for dist, err, it in jax.device_get(results):  # fault
        print(tol, "distance", dist, "error", err, "iterations", it, flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
