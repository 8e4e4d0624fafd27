"""Training with an interruption: the checkpoint holds step, weights and optimizer; the index-based loader continues at the step. Structure: the nanoGPT and grain style of deterministic loaders, rebuilt."""
import json
import pickle
import tempfile
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
TABLE = np.random.default_rng(0).standard_normal((20_000, 33)).astype(np.float32)
tx = optax.adam(1e-3)


def batch_at(step):
    rows = np.random.default_rng(step).integers(0, len(TABLE), 256)
    return TABLE[rows, :32], np.sin(TABLE[rows, 0]) * TABLE[rows, 1]


@eqx.filter_jit
def update(model, opt_state, x, y):
    def loss_fn(m):
        return jnp.mean((jax.vmap(m)(x) - y) ** 2)

    loss, grads = eqx.filter_value_and_grad(loss_fn)(model)
    updates, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


def train(path, until):
    model = eqx.nn.MLP(32, "scalar", 256, 2, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)
    first, opt_state = 0, tx.init(arrays)
    if path.exists():
        first, arrays, opt_state = pickle.loads(path.read_bytes())
        arrays, opt_state = jax.tree.map(jnp.asarray, (arrays, opt_state))
        print("resumed at", first)
    model = eqx.combine(arrays, static)
    for step in range(first, until):
        model, opt_state, loss = update(model, opt_state, *batch_at(step))
        if step % 400 == 399:
            print(f"step {step + 1} loss {float(loss):.4f}")
            path.write_bytes(pickle.dumps((step + 1, *jax.device_get((eqx.filter(model, eqx.is_array), opt_state)))))


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "latest.pkl"
        train(path, 800)
        train(path, 1600)
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0}))


main()
