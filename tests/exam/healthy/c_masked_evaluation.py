"""Train and evaluate with metrics summed on the device and a padded, masked last batch. Structure: flax examples (ogbg, wmt) with clu-like metrics, rebuilt."""
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

START = time.perf_counter()
BATCH = 256


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.LayerNorm()(nn.Dense(192)(x)))
        return nn.Dense(8)(nn.relu(nn.Dense(192)(x)))


model, tx = Net(), optax.adam(1e-3)


@jax.jit
def step(params, opt_state, x, y):
    def loss_fn(p):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(p, x), y).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def add_metrics(totals, params, x, y, mask):
    guess = model.apply(params, x).argmax(-1)
    hits = (guess == y) * mask
    confusion = totals["confusion"].at[y, guess].add(mask)
    return {"hits": totals["hits"] + hits.sum(), "seen": totals["seen"] + mask.sum(), "confusion": confusion}


def padded(x, y):
    for lo in range(0, len(x), BATCH):
        xb, yb = x[lo : lo + BATCH], y[lo : lo + BATCH]
        short = BATCH - len(xb)
        yield np.pad(xb, ((0, short), (0, 0))), np.pad(yb, (0, short)), np.pad(np.ones(len(xb), np.float32), (0, short))


def main():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10_100, 40)).astype(np.float32)
    y = (x @ rng.standard_normal((40, 8))).argmax(1).astype(np.int32)
    x_test, y_test, x, y = x[8192:], y[8192:], x[:8192], y[:8192]
    params = jax.jit(model.init)(jax.random.key(0), x[:1])
    opt_state = tx.init(params)
    for epoch in range(12):
        for rows in rng.permutation(8192).reshape(-1, BATCH):
            params, opt_state, loss = step(params, opt_state, x[rows], y[rows])
        totals = {"hits": np.float32(0), "seen": np.float32(0), "confusion": np.zeros((8, 8), np.float32)}
        for batch in padded(x_test, y_test):
            totals = add_metrics(totals, params, *batch)
        totals = jax.device_get(totals)
        print(f"epoch {epoch} accuracy {totals['hits'] / totals['seen']:.3f} of {int(totals['seen'])}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0}))


main()
