"""After we fixed a memory problem the DQN trainer's steps take ten times as long; the device is idle and the profiler shows nothing in our functions.

Truth: the training loop calls gc.collect() in each step, which walks all objects of the large Python replay buffer every time.
Advice: remove the explicit gc.collect() (or call it rarely, after gc.freeze()), and keep the buffer in a few NumPy arrays instead of millions of objects.
"""
import gc
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"garbage|\bgc\b|collect",)


class Transition:
    __slots__ = ("obs", "action", "reward", "info")

    def __init__(self, obs, action, reward, info):
        self.obs, self.action, self.reward, self.info = obs, action, reward, info


def fill_buffer(n):
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((n, 12), dtype=np.float32)
    reward = obs[:, 0] * obs[:, 1]
    gc.disable()
    buffer = [Transition(obs[i], i % 4, reward[i], {"episode": [i // 200], "step": i % 200}) for i in range(n)]
    gc.enable()
    return buffer


tx = optax.adam(1e-3)


@jax.jit
def step(params, opt_state, obs, action, reward):
    def loss_fn(p):
        values = jax.nn.relu(jax.nn.relu(obs @ p["a"]) @ p["b"]) @ p["c"]
        return jnp.mean((jnp.take_along_axis(values, action[:, None], 1)[:, 0] - reward) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


def main():
    buffer = fill_buffer(100_000)
    rng = np.random.default_rng(1)
    shapes = {"a": (12, 512), "b": (512, 512), "c": (512, 4)}
    params = {k: jnp.asarray(rng.standard_normal(s) / np.sqrt(s[0]), jnp.float32) for k, s in shapes.items()}
    opt_state, lost = tx.init(params), 0.0
    for i in range(50):
        picks = [buffer[j] for j in rng.integers(0, len(buffer), 512)]
        obs = np.stack([p.obs for p in picks])
        action, reward = np.array([p.action for p in picks]), np.array([p.reward for p in picks])
        params, opt_state, loss = step(params, opt_state, obs, action, reward)
        if not FIXED:
            t0 = time.perf_counter()
            gc.collect()  # fault
            lost += time.perf_counter() - t0
        if i % 10 == 9:
            print(f"step {i + 1} loss {float(loss):.4f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))


main()
