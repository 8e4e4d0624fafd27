"""The event model ignores the time between events; the feature 'seconds since the last click' seems to be 0 or 128 for everybody.

Truth: Unix timestamps (float64, 1.7e9) become float32 when they enter JAX, whose spacing there is 128 seconds, so the differences computed on the device are rounded to 0 or multiples of 128.
Advice: subtract an origin (or take the differences) in NumPy float64 before handing the array to JAX, or enable x64.
"""
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"float32|float64|x64|precision|truncat", r"timestamp|time|1\.7e|large|round|spacing|precision|truncat|cast|lost|resolution|silent")


def load_sessions():
    rng = np.random.default_rng(8)
    gaps = rng.exponential(20.0, size=(8192, 32))
    clock = 1_700_000_000.0 + rng.uniform(0, 86_400, size=(8192, 1)) + np.cumsum(gaps, axis=1)
    bursty = (gaps[:, 1:] < 4.0).sum(1) > 5
    return clock, bursty.astype(np.float32)


def features(clock):
    gaps = jnp.diff(clock, axis=1)
    return jnp.log1p(gaps)


def loss_fn(params, clock, label):
    h = jax.nn.tanh(features(clock) @ params["w1"] + params["b1"])
    h = jax.nn.tanh(h @ params["w2"])
    return optax.sigmoid_binary_cross_entropy(h @ params["out"], label).mean()


def main():
    clock, label = load_sessions()
    if FIXED:
        clock = clock - clock[:, :1]
    clock = jnp.asarray(clock)  # fault
    label = jnp.asarray(label)
    rng = np.random.default_rng(0)
    shapes = {"w1": (31, 128), "b1": (128,), "w2": (128, 128), "out": (128,)}
    params = {k: jnp.asarray(0.1 * rng.standard_normal(s), jnp.float32) for k, s in shapes.items()}
    tx = optax.adam(1e-3)
    opt_state = tx.init(params)

    @jax.jit
    def step(params, opt_state, rows):
        loss, grads = jax.value_and_grad(loss_fn)(params, clock[rows], label[rows])
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    for i in range(500):
        params, opt_state, loss = step(params, opt_state, rng.integers(0, 8192, 512))
        if i % 100 == 99:
            print(f"step {i + 1} loss {float(loss):.4f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": None if not FIXED else 0}))


main()
