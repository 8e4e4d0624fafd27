"""Surrogate network for a plasma code; x64 is on for the loss bookkeeping. "Since I turned x64 on for the sums, training takes twice the time, though my weights are float32."

Truth: the batch is normalised with NumPy float64 statistics, so with x64 on the inputs become float64 and the whole forward and backward pass of the float32 model runs in float64.
Advice: cast the batch (or mean and std) to float32 before the model; keep float64 for the sums only.
"""
import time
T0 = time.perf_counter()
import json
import sys
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"float64|f64|double|x64|64-?bit",)
DIM, HID, BATCH, STEPS = 64, 768, 512, 260
opt = optax.adam(1e-3)


def init(key):
    ks = jax.random.split(key, 4)
    sizes = [(DIM, HID), (HID, HID), (HID, HID), (HID, 8)]
    return [(jax.random.normal(k, s, jnp.float32) / np.float32(np.sqrt(s[0])), jnp.zeros(s[1], jnp.float32))
            for k, s in zip(ks, sizes)]


def forward(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)  # fault
    return x @ params[-1][0] + params[-1][1]  # fault


def loss_fn(params, x, y):
    err = (forward(params, x) - y) ** 2  # fault
    return jnp.mean(err)


@jax.jit
def train_step(params, opt_state, total, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)  # fault
    updates, opt_state = opt.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, total + loss.astype(jnp.float64)


rng = np.random.default_rng(0)
raw = (rng.lognormal(size=(32768, DIM)) * 40).astype(np.float32)
target = np.sin(np.log(raw) @ rng.normal(size=(DIM, 8)) / 8).astype(np.float32)
mean, std = raw.mean(0, dtype=np.float64), raw.std(0, dtype=np.float64)  # fault
if FIXED:
    mean, std = mean.astype(np.float32), std.astype(np.float32)

params = init(jax.random.key(0))
opt_state = opt.init(params)
total, seen, order = jnp.zeros((), jnp.float64), 0, []
for step in range(STEPS):
    if len(order) < BATCH:
        order = rng.permutation(len(raw))
    idx, order = order[:BATCH], order[BATCH:]
    x = (raw[idx] - mean) / std  # fault
    params, opt_state, total = train_step(params, opt_state, total, x, target[idx])  # fault
    seen += 1
    if step % 65 == 64:
        print(step + 1, "mean loss", float(total) / seen, flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
