"""Autoencoder training which saves parameters and Adam state every few steps. "Utilisation drops to nothing every few seconds."

Truth: np.savez_compressed deflates tens of megabytes of random float bits in the training thread at every checkpoint; the device is idle meanwhile.
Advice: save uncompressed, less often, and in the background (orbax AsyncCheckpointer).
"""
import time
T0 = time.perf_counter()
import json
import os
import sys
import tempfile
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"checkpoint|sav(e|ing)|savez|compress|writ(e|ing)|zip|deflate|serial", r"main thread|loop|block|wait|idle|second|%|time|slow|stall|host|often|async|background|starv")
STEPS, EVERY, B = 120, 15, 128
SIZES = [784, 512, 256, 64, 256, 512, 784]
tx = optax.adam(1e-3)


def init(key):
    ks = jax.random.split(key, len(SIZES) - 1)
    return [{"w": jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, "b": jnp.zeros(b)} for k, a, b in zip(ks, SIZES, SIZES[1:])]


def forward(params, x):
    for p in params[:-1]:
        x = jax.nn.relu(x @ p["w"] + p["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


@jax.jit
def train_step(params, opt_state, x):
    loss, g = jax.value_and_grad(lambda p: jnp.mean((forward(p, x) - x) ** 2))(params)
    up, opt_state = tx.update(g, opt_state)
    return optax.apply_updates(params, up), opt_state, loss


def save(folder, step, params, opt_state):
    flat = {str(i): np.asarray(a) for i, a in enumerate(jax.tree.leaves((params, opt_state)))}
    tmp = os.path.join(folder, "tmp.npz")
    if FIXED:
        np.savez(tmp, **flat)
    else:
        np.savez_compressed(tmp, **flat)  # fault
    os.replace(tmp, os.path.join(folder, f"step-{step}.npz"))


rng = np.random.default_rng(0)
basis = rng.normal(size=(16, 784)).astype(np.float32)
params = init(jax.random.key(0))
opt_state = tx.init(params)
lost = 0.0
with tempfile.TemporaryDirectory() as folder:
    for step in range(1, STEPS + 1):
        x = np.tanh(rng.normal(size=(B, 16)).astype(np.float32) @ basis * 0.3)
        params, opt_state, loss = train_step(params, opt_state, x)
        if step % EVERY == 0:
            print("step", step, "loss", float(loss), flush=True)
            t = time.perf_counter()
            save(folder, step, params, opt_state)  # fault
            lost += 0.0 if FIXED else time.perf_counter() - t
            for old in sorted(os.listdir(folder), key=lambda n: int(n[5:-4]))[:-2]:
                os.remove(os.path.join(folder, old))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))
