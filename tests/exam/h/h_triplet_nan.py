"""Metric learning with batch-hard triplets. "Loss is fine in the first step and nan from the second on; I already guard the square root with where."

Truth: jnp.where(d2 > 0, jnp.sqrt(d2), 0) has gradient 0 * inf = NaN on the diagonal (distance 0 to itself); all parameters are NaN after the first update.
Advice: make the argument safe before the root: sqrt(where(d2 > 0, d2, 1)) within the outer where, or add an epsilon.
"""
import time
T0 = time.perf_counter()
import json
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

FIXED = "--fixed" in sys.argv
WORDS = (r"nan|not.a.number|non.?finite", r"sqrt|square root|gradient|grad|param|loss|where|backward|state")
CLASSES, BATCH, STEPS = 32, 192, 300


class Embedder(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(3):
            x = nn.relu(nn.Dense(768)(x))
        return nn.Dense(64)(x)


def pairwise(z):
    d2 = jnp.sum((z[:, None, :] - z[None, :, :]) ** 2, -1)
    if FIXED:
        safe = jnp.where(d2 > 0, d2, 1.0)
        return jnp.where(d2 > 0, jnp.sqrt(safe), 0.0)
    return jnp.where(d2 > 0, jnp.sqrt(d2), 0.0)  # fault


def batch_hard(z, y, margin=0.5):
    dist = pairwise(z)  # fault
    same = y[:, None] == y[None, :]
    hardest_pos = jnp.max(jnp.where(same, dist, 0.0), 1)
    hardest_neg = jnp.min(jnp.where(same, 1e6, dist), 1)
    return jax.nn.softplus(hardest_pos - hardest_neg + margin).mean()


@jax.jit
def train_step(state, x, y):
    def loss_fn(p):
        return batch_hard(state.apply_fn({"params": p}, x), y)  # fault

    loss, grads = jax.value_and_grad(loss_fn)(state.params)  # fault
    return state.apply_gradients(grads=grads), loss


def main():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, 128)).astype(np.float32)
    model = Embedder()
    params = model.init(jax.random.PRNGKey(0), jnp.zeros((1, 128)))["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(3e-4))
    history = []
    for step in range(STEPS):
        y = np.repeat(rng.choice(CLASSES, BATCH // 8, replace=False), 8).astype(np.int32)
        x = centres[y] + 0.8 * rng.normal(size=(BATCH, 128)).astype(np.float32)
        state, loss = train_step(state, x, y)  # fault
        history.append(loss)
    print("loss", [round(float(v), 3) for v in history[::50]])
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))


main()
