"""Training of an Equinox autoencoder from a memory-mapped file. "Train loss goes to nearly zero within minutes, validation gets worse from the start."

Truth: every step takes next(iter(loader)): a new iterator from the beginning, with the same shuffling seed, so that every step trains on the same first batch.
Advice: create the iterator once, before the loop (it = iter(loader); batch = next(it)), or write `for batch in loader`.
"""
import time
T0 = time.perf_counter()
import json
import os
import sys
import tempfile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"same|identical|repeat|never (advanc|chang)|(not|n't) (advanc|chang)|again|over and over|unchanged|constant", r"batch|data|input|argument|iter")
ROWS, DIM, BATCH, STEPS = 60_000, 256, 256, 220


class Loader:
    """Shuffled batches of a memory-mapped array."""

    def __init__(self, path, batch_size, seed=0):
        self.data, self.batch_size, self.seed, self.epoch = np.load(path, mmap_mode="r"), batch_size, seed, 0

    def __len__(self):
        return len(self.data) // self.batch_size

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.data))
        for i in range(len(self)):
            yield np.asarray(self.data[np.sort(order[i * self.batch_size:(i + 1) * self.batch_size])])


def make_file():
    rng = np.random.default_rng(3)
    basis = rng.standard_normal((24, DIM)).astype(np.float32) / 5
    data = np.tanh(rng.standard_normal((ROWS, 24)).astype(np.float32) @ basis)
    data += 0.05 * rng.standard_normal(data.shape, np.float32)
    path = os.path.join(tempfile.mkdtemp(), "train.npy")
    np.save(path, data[:-2048])
    return path, jnp.asarray(data[-2048:])


class AutoEncoder(eqx.Module):
    enc: eqx.nn.MLP
    dec: eqx.nn.MLP

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.enc = eqx.nn.MLP(DIM, 32, 512, 2, key=a)
        self.dec = eqx.nn.MLP(32, DIM, 512, 2, key=b)

    def __call__(self, x):
        return self.dec(self.enc(x))


def mse(model, x):
    return jnp.mean((jax.vmap(model)(x) - x) ** 2)


tx = optax.adamw(1e-3)
evaluate = eqx.filter_jit(mse)


@eqx.filter_jit
def make_step(model, opt, x):
    loss, grads = eqx.filter_value_and_grad(mse)(model, x)
    updates, opt = tx.update(grads, opt, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), opt, loss


path, held_out = make_file()
loader = Loader(path, BATCH)
model = AutoEncoder(jax.random.key(0))
opt = tx.init(eqx.filter(model, eqx.is_array))
batches, losses = iter(loader), []
for step in range(STEPS):
    batch = next(batches) if FIXED else next(iter(loader))  # fault
    model, opt, loss = make_step(model, opt, batch)  # fault
    losses.append(loss)
print("train %.5f  validation %.5f" % (float(losses[-1]), float(evaluate(model, held_out))))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
