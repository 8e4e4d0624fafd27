"""A batch scoring job: fits a small model, then scores the shards in parallel with a pool. "The fit is fine, then the pool never returns. Both workers sit at 0 % CPU."

Truth: multiprocessing.Pool forks (the default on Linux) after JAX has started its threads; the children inherit the runtime without its threads and dead-lock in their first JAX call, and map() waits for ever.
Advice: a thread pool (JAX releases the GIL), or multiprocessing.get_context("spawn"/"forkserver"), or create the pool before JAX is used and keep JAX out of the children.
"""
import time
T0 = time.perf_counter()
import json
import multiprocessing
import os
import sys
import threading
from multiprocessing.pool import ThreadPool
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"fork|multiprocess|child|pool|worker process", r"fork|dead.?lock|hang|hung|wait|stuck|spawn|never|thread")


def stop():
    for p in multiprocessing.active_children():
        p.kill()
    os._exit(0)


killer = threading.Timer(40, stop)
killer.daemon = True
killer.start()
rng = np.random.default_rng(0)
X = rng.standard_normal((4096, 128), np.float32)
Y = np.tanh(X @ rng.standard_normal((128, 1)).astype(np.float32))[:, 0]
k1, k2 = jax.random.split(jax.random.key(0))
params = {"a": jax.random.normal(k1, (128, 256)) * 0.1, "b": jax.random.normal(k2, (256,)) * 0.1}
tx = optax.adam(1e-3)


@jax.jit
def model(params, x):
    return jax.nn.relu(x @ params["a"]) @ params["b"]


@jax.jit
def fit(params, state, x, y):
    def step(carry, _):
        params, state = carry
        loss, g = jax.value_and_grad(lambda p: ((model(p, x) - y) ** 2).mean())(params)
        up, state = tx.update(g, state)
        return (optax.apply_updates(params, up), state), loss
    return jax.lax.scan(step, (params, state), length=100)


(params, state), losses = fit(params, tx.init(params), X, Y)
print("fitted", float(losses[0]), float(losses[-1]))


def score_shard(i):
    x = np.random.default_rng(i).standard_normal((20000, 128), np.float32)
    return float(jnp.mean(model(params, x)))


if __name__ == "__main__":
    pool = ThreadPool(2) if FIXED else multiprocessing.Pool(2)  # fault
    means = pool.map(score_shard, range(48))  # fault
    pool.close()
    pool.join()
    print("mean score", float(np.mean(means)))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
