"""Linen MLP-Mixer-like regressor with Orbax, keeps the best model. "Training is several times slower than the bare step."

Truth: "save if best" tests the training loss of every step, so that at first nearly every step writes a whole checkpoint and waits until it is on disk.
Advice: judge and save at intervals (every N steps or per epoch), and let Orbax save asynchronously instead of wait_until_finished at once.
"""
import time
T0 = time.perf_counter()
import json
import os
import sys
import tempfile
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax.training import train_state

FIXED = "--fixed" in sys.argv
WORDS = (r"checkpoint|\bsav(e|es|ed|ing)\b|orbax|wait_until_finished|\bwrit(e|es|ing)\b|\bdisk\b",)
STEPS, EVERY = 160, 40


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(768)(x)
        for _ in range(3):
            x = x + nn.Dense(768)(nn.gelu(nn.LayerNorm()(x)))
        return nn.Dense(16)(x)


@jax.jit
def train_step(state, x, y):
    def loss_fn(params):
        return jnp.mean((state.apply_fn({"params": params}, x) - y) ** 2)
    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def main(folder):
    net = Net()
    rng = np.random.default_rng(0)
    w = rng.normal(size=(64, 16)) / 8
    params = jax.jit(net.init)(jax.random.key(0), jnp.ones((1, 64)))["params"]
    state = train_state.TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(optax.linear_schedule(0., 3e-4, 100)))
    saver = ocp.StandardCheckpointer()
    best, saves, spent, recent = float("inf"), 0, 0.0, []
    for step in range(1, STEPS + 1):
        x = rng.normal(size=(512, 64)).astype(np.float32)
        state, loss = train_step(state, x, np.sin(2 * x @ w).astype(np.float32))
        recent.append(loss)
        if FIXED and step % EVERY:
            continue
        value = float(jnp.mean(jnp.stack(recent[-EVERY:]))) if FIXED else float(loss)
        if value < best:
            best = value
            t = time.perf_counter()
            saver.save(os.path.join(folder, "best"), state.params, force=True)  # fault
            if not FIXED:
                saver.wait_until_finished()  # fault
            spent += time.perf_counter() - t
            saves += 1
        if step % EVERY == 0:
            print(step, "loss", value, "best", best, "saves", saves, flush=True)
    saver.wait_until_finished()
    saver.close()
    return None if FIXED else spent * (1 - STEPS / EVERY / max(saves, 1))


with tempfile.TemporaryDirectory() as folder:
    lost = main(folder)  # fault
print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))
