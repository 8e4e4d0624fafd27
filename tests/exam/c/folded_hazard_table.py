"""The survival model needs many seconds before the first step although it is a handful of lines; XLA prints something about constants.

Truth: the cumulative hazard is computed inside the jitted step from a NumPy table captured as a constant, so XLA evaluates the whole cumsum in its slow constant folder while compiling.
Advice: compute the cumulative table once outside the jitted function and pass it (or the raw table) as an argument.
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
WORDS = (r"compil", r"constant|fold|captur|clos|argument|long|slow|seconds")
AGES, GROUPS = 400, 400

HAZARD = np.random.default_rng(2).gamma(2.0, 0.001, size=(AGES, GROUPS)).astype(np.float32)


def log_survival(table):
    return -jnp.cumsum(table, axis=0)


def negative_log_likelihood(params, curve, age, group, covariate, died):
    risk = jax.nn.tanh(covariate @ params["w"] + params["b"]) @ params["v"]
    base = curve[age, group]
    hazard = jnp.log1p(-base) + risk
    return -jnp.mean(died * hazard + base * jnp.exp(risk))


def main():
    rng = np.random.default_rng(0)
    n = 20_000
    age, group = rng.integers(0, AGES, n), rng.integers(0, GROUPS, n)
    covariate = rng.standard_normal((n, 64)).astype(np.float32)
    died = (rng.random(n) < 0.3).astype(np.float32)
    params = {"w": jnp.asarray(rng.standard_normal((64, 256)) / 8, jnp.float32), "b": jnp.zeros(256), "v": jnp.zeros(256)}
    tx = optax.adam(1e-3)
    opt_state = tx.init(params)
    ready = jax.jit(log_survival)(HAZARD)

    @jax.jit
    def step(params, opt_state, curve, *batch):
        if not FIXED:
            curve = log_survival(jnp.asarray(HAZARD))  # fault
        loss, grads = jax.value_and_grad(negative_log_likelihood)(params, curve, *batch)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    t0 = time.perf_counter()
    lost = 0.0
    for i in range(400):
        rows = rng.integers(0, n, 2048)
        params, opt_state, loss = step(params, opt_state, ready, age[rows], group[rows], covariate[rows], died[rows])  # fault
        if i == 0 and not FIXED:
            lost = time.perf_counter() - t0
        if i % 100 == 99:
            print(f"step {i + 1} loss {float(loss):.4f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))


main()
