"""The demand forecaster's loss is nan at the end of the first epoch and stays so, whatever the learning rate; with a subset of the data it trains.

Truth: one record of the data set holds a NaN; the batch with it makes loss and gradient NaN and from then on all weights are NaN.
Advice: drop or impute records that are not finite in the loader (or check each batch with np.isfinite), and stop the run at the first loss that is not finite.
"""
import json
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"nan|not finite|non-?finite",)


def load_table():
    rng = np.random.default_rng(11)
    x = rng.standard_normal((40_000, 24)).astype(np.float32)
    y = np.tanh(x[:, :3]).sum(1) + 0.1 * rng.standard_normal(40_000).astype(np.float32)
    x[23_417, 5] = np.nan  # a sensor that was off
    if FIXED:
        good = np.isfinite(x).all(axis=1)
        x, y = x[good], y[good]
    return x, y


def batches(x, y, size, epochs):
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(x))
        for lo in range(0, len(x) - size + 1, size):
            rows = order[lo : lo + size]
            yield epoch, x[rows], y[rows]  # fault


tx = optax.adam(1e-3)


@eqx.filter_jit
def update(model, opt_state, x, y):
    def loss_fn(model):
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    loss, grads = eqx.filter_value_and_grad(loss_fn)(model)
    deltas, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(model, deltas), opt_state, loss


def main():
    model = eqx.nn.MLP(24, "scalar", 128, 3, key=jax.random.key(0))
    opt_state = tx.init(eqx.filter(model, eqx.is_array))
    last = 0
    for epoch, x, y in batches(*load_table(), size=256, epochs=6):
        if epoch != last:
            print(f"epoch {last} loss {float(loss):.4f}")
            last = epoch
        model, opt_state, loss = update(model, opt_state, x, y)  # fault
    print(f"epoch {last} loss {float(loss):.4f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": None if not FIXED else 0}))


main()
