# %% [markdown]
"""A notebook turned script: a learning-rate sweep as one vmapped training run with successive halving (16, 8, 4 runs), then two architectures in turn.
The environment is recorded by a subprocess; losses are read once per rung; each rung and each width compiles once, knowingly, as their shapes differ; some eager look-at-the-data cells.
"""
# %%
import time
T0 = time.perf_counter()
import functools
import json
import subprocess
import sys
import jax
import jax.numpy as jnp
import numpy as np
import optax

env = subprocess.run([sys.executable, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True, check=True).stdout.strip()
print("python", env, "jax", jax.__version__)
# %% the data, and a look at it
rng = np.random.default_rng(0)
X = jnp.asarray(rng.normal(size=(8192, 32)), jnp.float32)
Y = jnp.sin(X @ jnp.asarray(rng.normal(size=(32, 4)), jnp.float32))
print("x mean/std", float(X.mean()), float(X.std()), "y range", float(Y.min()), float(Y.max()))
print("correlation", np.round(np.corrcoef(np.asarray(X[:, 0]), np.asarray(Y[:, 0]))[0, 1], 3))
# %% model and training
optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=1e-3)


def init(key, width):
    a, b, c = jax.random.split(key, 3)
    return {"w1": jax.random.normal(a, (32, width)) / 32 ** 0.5, "b1": jnp.zeros(width),
            "w2": jax.random.normal(b, (width, width)) / width ** 0.5, "b2": jnp.zeros(width),
            "w3": jax.random.normal(c, (width, 4)) / width ** 0.5}


def predict(p, x):
    return jax.nn.relu(jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]) @ p["w3"]


def mse(p, x, y):
    return jnp.mean((predict(p, x) - y) ** 2)


def new_run(key, lr, width):
    params = init(key, width)
    state = optimizer.init(params)
    state.hyperparams["learning_rate"] = lr
    return params, state


def train(params, state, order, x, y):
    def step(carry, idx):
        params, state = carry
        loss, grads = jax.value_and_grad(mse)(params, x[idx], y[idx])
        updates, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, updates), state), loss
    (params, state), losses = jax.lax.scan(step, (params, state), order)
    return params, state, losses[-20:].mean()


rung = jax.jit(jax.vmap(train, in_axes=(0, 0, None, None, None)), donate_argnums=(0, 1))
start = jax.jit(jax.vmap(new_run, in_axes=(None, 0, None)), static_argnums=2)
keep = jax.jit(lambda tree, idx: jax.tree.map(lambda a: a[idx], tree))
orders = jax.vmap(functools.partial(jax.random.permutation, x=8192))(jax.random.split(jax.random.key(7), 6))
# %% the sweep
for width in (64, 96):
    lrs = jnp.logspace(-4, -1.5, 16)
    params, state = start(jax.random.key(1), lrs, width)
    for r in range(3):
        order = orders[2 * r:2 * r + 2].reshape(-1, 128)
        params, state, losses = rung(params, state, order, X, Y)
        losses = np.asarray(losses)                         # one read per rung decides who stays
        best = np.argsort(losses)[:len(losses) // 2]
        print(f"width {width} rung {r}: {len(losses)} runs, best loss {losses[best[0]]:.4f}, lr {float(lrs[best[0]]):.1e}")
        if r < 2:
            params, state, lrs = keep((params, state, lrs), best)
# %% check the winner
winner = jax.tree.map(lambda a: a[int(best[0])], params)
print("whole-data error of the winner", round(float(jax.jit(mse)(winner, X, Y)), 4))
print(json.dumps({"wall": time.perf_counter() - T0}))
