"""Each step trains on 256 rows with a small network, yet takes a fifth of a second, and doubling the size of the data set doubles the time of a step.

Truth: the whole data set is a NumPy array and is an argument of the jitted step, so all of it (about 100 MB) is copied to the device in every call, though only 256 rows are used.
Advice: put the data set on the device once (jnp.asarray / jax.device_put before the loop), or index on the host and pass only the batch.
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
WORDS = (r"numpy|host|argument|transfer|cop(y|ies)|device_put", r"transfer|cop(y|ies|ied)|upload|device_put|MB|bytes")


def load():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200_000, 128), dtype=np.float32)
    return x, np.tanh(x[:, :8]).sum(axis=1)


def predict(params, x):
    return (jax.nn.relu(x @ params["w1"] + params["b1"]) @ params["w2"])[:, 0]


tx = optax.adam(1e-3)


@jax.jit
def step(params, opt_state, x, y, key):
    rows = jax.random.randint(key, (256,), 0, x.shape[0])

    def loss_fn(p):
        return jnp.mean((predict(p, x[rows]) - y[rows]) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


def main():
    x, y = load()
    if FIXED:
        x, y = jnp.asarray(x), jnp.asarray(y)
    rng = np.random.default_rng(1)
    params = {"w1": jnp.asarray(rng.standard_normal((128, 64)) / 11, jnp.float32), "b1": jnp.zeros(64), "w2": jnp.zeros((64, 1))}
    opt_state = tx.init(params)
    keys = list(jax.random.split(jax.random.key(0), 60))
    lost = 0.0
    for i, key in enumerate(keys):
        t0 = time.perf_counter()
        params, opt_state, loss = step(params, opt_state, x, y, key)  # fault
        loss.block_until_ready()
        if i and not FIXED:
            lost += time.perf_counter() - t0
        if i % 20 == 19:
            print(f"step {i + 1} loss {float(loss):.4f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))


main()
