"""A short meta-learning script: many seconds of patience at its first step, after which two hundred steps take less than a second.

Truth: the inner gradient descent is a Python loop inside the jitted meta step, so the program (and its second derivative) is unrolled once per inner step, and the first call spends all its time tracing and compiling it.
Advice: use jax.lax.fori_loop / scan for the inner steps, so that the body is compiled once.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"unroll|scan|fori_loop|loop|large program|equations|first call|size")
INNER, SHOTS, HIDDEN, META_STEPS = 22, 16, 32, 200


def predict(weights, x):
    return jnp.tanh(x @ weights["a"] + weights["bias"]) @ weights["b"]


def loss_fn(weights, x, y):
    return jnp.mean((predict(weights, x) - y) ** 2)


def descend(weights, x, y):
    grads = jax.grad(loss_fn)(weights, x, y)
    return jax.tree.map(lambda w, g: w - 0.05 * g, weights, grads)


def adapt(weights, x, y):
    if FIXED:
        return jax.lax.scan(lambda w, _: (descend(w, x, y), None), weights, None, INNER)[0]
    for _ in range(INNER):  # fault
        weights = descend(weights, x, y)  # fault
    return weights


@jax.jit
def meta_step(weights, support, query):
    def meta_loss(w):
        return loss_fn(adapt(w, *support), *query)

    loss, grads = jax.value_and_grad(meta_loss)(weights)
    return jax.tree.map(lambda w, g: w - 0.02 * jnp.clip(g, -1, 1), weights, grads), loss


def task(rng):
    amplitude, phase = rng.uniform(0.5, 2.0), rng.uniform(0, np.pi)
    x = rng.uniform(-3, 3, (2, SHOTS, 1)).astype(np.float32)
    y = (amplitude * np.sin(x + phase)).astype(np.float32)
    return (x[0], y[0]), (x[1], y[1])


rng = np.random.default_rng(0)
weights = {
    "a": rng.standard_normal((1, HIDDEN)).astype(np.float32),
    "bias": rng.standard_normal(HIDDEN).astype(np.float32),
    "b": (rng.standard_normal((HIDDEN, 1)) * 0.2).astype(np.float32),
}
times, losses = [], []
for step in range(META_STEPS):
    support, query = task(rng)
    t = time.perf_counter()
    weights, loss = meta_step(weights, support, query)  # fault
    losses.append(float(loss))
    times.append(time.perf_counter() - t)
print(f"loss {np.mean(losses[:20]):.3f} -> {np.mean(losses[-20:]):.3f}; first step {times[0]:.2f} s, then {1e3 * np.median(times):.2f} ms")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(times[0] - float(np.median(times)), 3)}))
