"""A denoising autoencoder reaches a training loss near zero within seconds, but is useless on fresh noise: the validation loss stays far above the training loss, although the data never repeat.

Truth: the noise is drawn with numpy inside the jitted step, so it is drawn once at trace time and baked into the program as a constant; every step sees the same noise.
Advice: draw it with jax.random from a key that is passed into the step and split for each step (or draw it outside and pass it in).
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"random|noise|rng", r"trac|constant|baked|frozen|same|once|identical")
BATCH, DIM, HIDDEN, STEPS = 128, 192, 384, 800
rng = np.random.default_rng(0)


def forward(params, x):
    h = x
    for w, b in params[:-1]:
        h = jax.nn.relu(h @ w + b)
    return h @ params[-1][0] + params[-1][1]


def corrupt(x, key):
    if FIXED:
        return x + 0.8 * jax.random.normal(key, x.shape)
    return x + 0.8 * np.random.standard_normal(x.shape).astype(np.float32)  # fault


tx = optax.adam(1e-3)


@jax.jit
def train_step(params, opt, clean, key):
    def loss_fn(p):
        return jnp.mean((forward(p, corrupt(clean, key)) - clean) ** 2)  # fault

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt = tx.update(grads, opt)
    return optax.apply_updates(params, updates), opt, loss


@jax.jit
def validate(params, clean, key):
    noisy = clean + 0.8 * jax.random.normal(key, clean.shape)
    return jnp.mean((forward(params, noisy) - clean) ** 2)


np.random.seed(0)
basis = rng.standard_normal((24, DIM)).astype(np.float32)
held_out = (rng.standard_normal((BATCH, 24)) @ basis / 5).astype(np.float32)
sizes = [DIM, HIDDEN, HIDDEN, DIM]
keys = jax.random.split(jax.random.key(0), 3)
params = [(jax.random.normal(k, (m, n)) * m**-0.5, jnp.zeros(n)) for k, m, n in zip(keys, sizes, sizes[1:])]
opt = tx.init(params)
key = jax.random.key(1)
for step in range(STEPS):
    key, sub = jax.random.split(key)
    clean = (rng.standard_normal((BATCH, 24)) @ basis / 5).astype(np.float32)
    params, opt, loss = train_step(params, opt, clean, sub)
    if step % 100 == 99:
        print(f"step {step + 1}: train {float(loss):.4f} validation {float(validate(params, held_out, sub)):.4f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0 if FIXED else None}))
