"""The memory of a training job grows by some megabytes at each validation until the node kills it in the night; nothing in the model grows.

Truth: the early-stopping helper keeps the parameters of every validation in a list, so no old generation of device arrays can be freed, although only the best one is ever used.
Advice: keep only the best parameters (drop the others), or put old ones on disk.
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
WORDS = (r"memory|MB|MiB|GB|GiB|leak|live", r"grow|kept|keep|hold|held|list|history|accumul|leak|referenc|append")
DIM, HIDDEN, BATCH, STEPS = 256, 1200, 32, 280


class EarlyStopping:
    """Remembers what was best and rolls back to it in the end."""

    def __init__(self, patience):
        self.patience, self.history = patience, []

    def update(self, value, params):
        self.history.append((value, params))  # fault
        if FIXED:
            self.history = [min(self.history, key=lambda entry: entry[0])]
        return len(self.history) > self.patience and min(v for v, _ in self.history[-self.patience :]) > self.best()[0]

    def best(self):
        return min(self.history, key=lambda entry: entry[0])


def predict(params, x):
    for w in params[:-1]:
        x = jnp.tanh(x @ w)
    return (x @ params[-1])[:, 0]


tx = optax.sgd(optax.cosine_decay_schedule(0.02, STEPS))


@jax.jit
def train_step(params, opt, x, y):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((predict(p, x) - y) ** 2))(params)
    updates, opt = tx.update(grads, opt)
    return optax.apply_updates(params, updates), opt, loss


@jax.jit
def validation_loss(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


sizes = [DIM, HIDDEN, HIDDEN, 1]
keys = jax.random.split(jax.random.key(0), 3)
params = [jax.random.normal(k, (m, n)) * m**-0.5 for k, m, n in zip(keys, sizes, sizes[1:])]
opt = tx.init(params)
rng = np.random.default_rng(0)
weights = rng.standard_normal(DIM).astype(np.float32) / 16
x_val = rng.standard_normal((BATCH, DIM), dtype=np.float32)
stopper = EarlyStopping(patience=500)
for step in range(STEPS):
    x = rng.standard_normal((BATCH, DIM), dtype=np.float32)
    params, opt, loss = train_step(params, opt, x, np.sin(x @ weights))
    if step % 2 == 0:
        value = float(validation_loss(params, x_val, np.sin(x_val @ weights)))
        if stopper.update(value, params):  # fault
            break
value, params = stopper.best()
held = sum(a.nbytes for a in jax.live_arrays()) / 2**20
print(f"best validation loss {value:.4f}; {held:.0f} MiB of live arrays")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0 if FIXED else None}))
