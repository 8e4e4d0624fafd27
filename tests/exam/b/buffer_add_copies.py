"""The experience buffer lives in main memory. Adding a handful of transitions takes tens of milliseconds whatever the
number of transitions, and the memory of the process is twice that of the buffer while it adds.

Truth: the jitted `add` may not write into its input, so each call copies the whole buffer to change sixteen rows.
Advice: donate the buffer (`jax.jit(add, donate_argnums=0)`) so that it is updated in place, or collect rows and add them seldom.

Source: instadeepai/flashbax#6 (cf. jax-ml/jax#1034).
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp

FIXED = "--fixed" in sys.argv
WORDS = (r"donat|in.?place|alias", r"buffer|copy|copies|copied|memory|add|input|argument")
ROWS, FEATURES, NEW, STEPS = 150_000, 128, 16, 130


def add(buffer, transitions):
    start = buffer["cursor"] % (ROWS - NEW)
    obs = jax.lax.dynamic_update_slice(buffer["obs"], transitions["obs"], (start, 0))
    reward = jax.lax.dynamic_update_slice(buffer["reward"], transitions["reward"], (start,))
    return {"obs": obs, "reward": reward, "cursor": buffer["cursor"] + NEW}


add_jit = jax.jit(add, donate_argnums=0) if FIXED else jax.jit(add)  # fault


@jax.jit
def act(weights, obs, key):
    obs = jnp.tanh(obs @ weights) + 0.05 * jax.random.normal(key, obs.shape)
    return {"obs": obs, "reward": -jnp.mean(obs**2, axis=1)}


@jax.jit
def learn(weights, buffer, key):
    rows = jax.random.randint(key, (512,), 0, jnp.maximum(buffer["cursor"], 1))
    batch, reward = buffer["obs"][rows], buffer["reward"][rows]

    def loss(w):
        return jnp.mean((jnp.tanh(batch @ w).mean(axis=1) - reward) ** 2) + 1e-4 * jnp.sum(w**2)

    value, grad = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * grad, value


key = jax.random.key(0)
weights = 0.1 * jax.random.normal(key, (FEATURES, FEATURES))
buffer = {"obs": jnp.zeros((ROWS, FEATURES)), "reward": jnp.zeros(ROWS), "cursor": jnp.int32(0)}
obs = jax.random.normal(key, (NEW, FEATURES))
adding = 0.0
for step in range(STEPS):
    key, k_act, k_learn = jax.random.split(key, 3)
    transitions = jax.block_until_ready(act(weights, obs, k_act))
    t = time.perf_counter()
    buffer = jax.block_until_ready(add_jit(buffer, transitions))  # fault
    if step:
        adding += time.perf_counter() - t
    weights, value = learn(weights, buffer, k_learn)
    obs = transitions["obs"]
print("value loss", float(value), "rows", int(buffer["cursor"]))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(adding, 2)}))
