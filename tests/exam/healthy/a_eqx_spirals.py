"""A recurrent network classifies the turning direction of spirals.

Structure from the equinox documentation's example "Train RNN".
"""
import time
T0 = time.perf_counter()
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

SERIES, LENGTH, HIDDEN, BATCH, STEPS = 8000, 24, 32, 64, 1200


class Recurrent(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, key):
        k1, k2 = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(2, HIDDEN, key=k1)
        self.head = eqx.nn.Linear(HIDDEN, 1, key=k2)

    def __call__(self, series):
        hidden, _ = jax.lax.scan(lambda h, x: (self.cell(x, h), None), jnp.zeros(HIDDEN), series)
        return self.head(hidden)[0]


def spirals(seed):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 8, LENGTH)[None, :] + rng.uniform(0, 6, (SERIES, 1))
    radius = np.linspace(1, 0.2, LENGTH)[None, :]
    direction = np.where(np.arange(SERIES) % 2, 1.0, -1.0)[:, None]
    points = np.stack([radius * np.cos(t), direction * radius * np.sin(t)], axis=-1)
    points += 0.15 * rng.standard_normal(points.shape)
    return points.astype(np.float32), (np.arange(SERIES) % 2).astype(np.float32)


def batches(x, y, seed):
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(x))
        for start in range(0, len(x) - BATCH + 1, BATCH):
            index = order[start : start + BATCH]
            yield x[index], y[index]


optimizer = optax.adam(3e-3)


@eqx.filter_jit
def train_step(model, opt_state, x, y):
    def loss_fn(m):
        return optax.sigmoid_binary_cross_entropy(jax.vmap(m)(x), y).mean()

    loss, grads = eqx.filter_value_and_grad(loss_fn)(model)
    updates, opt_state = optimizer.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


@eqx.filter_jit
def accuracy(model, x, y):
    return jnp.mean((jax.vmap(model)(x) > 0) == (y > 0.5))


model = Recurrent(jax.random.key(0))
opt_state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
x, y = spirals(0)
x_test, y_test = spirals(1)
for step, (xb, yb) in zip(range(STEPS), batches(x, y, 2)):
    model, opt_state, loss = train_step(model, opt_state, xb, yb)
    if step % 200 == 199:
        print(f"step {step + 1}: loss {float(loss):.4f}")
print(f"test accuracy {float(accuracy(model, x_test, y_test)):.3f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}))
