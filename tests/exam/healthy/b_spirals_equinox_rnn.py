"""A GRU tells clockwise from anticlockwise spirals.

Structure: patrick-kidger/equinox docs/examples/train_rnn.ipynb turned into a script (dataloader generator, scan over time, filter_jit'd make_step).
"""
import json
import time

START = time.perf_counter()
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

DATASET, BATCH, STEPS, LENGTH, HIDDEN = 2048, 64, 260, 16, 24


def spirals(rng):
    t = np.linspace(0, 2 * np.pi, LENGTH)
    offset = rng.uniform(0, 2 * np.pi, (DATASET, 1))
    x, y = np.sin(t + offset) / (1 + t), np.cos(t + offset) / (1 + t)
    half = DATASET // 2
    x[:half] *= -1
    return np.stack([x, y], axis=-1).astype(np.float32), (np.arange(DATASET) >= half).astype(np.float32)


def dataloader(arrays, rng):
    while True:
        order = rng.permutation(DATASET)
        for start in range(0, DATASET - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            yield tuple(a[rows] for a in arrays)


class Classifier(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, key):
        k1, k2 = jr.split(key)
        self.cell = eqx.nn.GRUCell(2, HIDDEN, key=k1)
        self.head = eqx.nn.Linear(HIDDEN, 1, key=k2)

    def __call__(self, path):
        hidden, _ = jax.lax.scan(lambda h, x: (self.cell(x, h), None), jnp.zeros(HIDDEN), path)
        return self.head(hidden)[0]


@eqx.filter_value_and_grad
def loss_and_grad(model, x, y):
    return optax.sigmoid_binary_cross_entropy(jax.vmap(model)(x), y).mean()


optimizer = optax.adam(5e-3)


@eqx.filter_jit
def make_step(model, opt_state, x, y):
    loss, grads = loss_and_grad(model, x, y)
    updates, opt_state = optimizer.update(grads, opt_state)
    return loss, eqx.apply_updates(model, updates), opt_state


@eqx.filter_jit
def accuracy(model, x, y):
    return jnp.mean((jax.vmap(model)(x) > 0) == (y == 1))


rng = np.random.default_rng(0)
xs, ys = spirals(rng)
model = Classifier(jr.key(1))
opt_state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
for step, (x, y) in zip(range(STEPS), dataloader((xs, ys), rng)):
    loss, model, opt_state = make_step(model, opt_state, x, y)
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
print("accuracy", float(accuracy(model, xs, ys)))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
