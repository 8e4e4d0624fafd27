"""Convolutional classifier in Flax Linen with a Python data loader. "The training loss is zero at once, the test accuracy stays poor."

Truth: next(iter(loader)) makes a new iterator in each step; its shuffle is seeded by the epoch, which never advances, so every step trains on the same first batch.
Advice: iterate (for batch in loader) or make the iterator once, before the loop.
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
WORDS = (r"batch|data|input|iterator|loader|example", r"same|identical|repeat|again|(not|never|n't).{0,30}(advanc|chang|new|fresh|progress)|first|unchanged|constant")
N, B, STEPS = 8192, 64, 250


class Loader:
    def __init__(self, x, y, batch, seed=0):
        self.x, self.y, self.batch, self.seed, self.epoch = x, y, batch, seed, 0

    def __iter__(self):
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.x))
        for i in range(0, len(order) - self.batch + 1, self.batch):
            j = order[i:i + self.batch]
            yield self.x[j], self.y[j]
        self.epoch += 1


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        for c in (16, 32):
            x = nn.relu(nn.Conv(c, (3, 3), strides=2)(x))
        x = x.reshape(x.shape[0], -1)
        return nn.Dense(10)(nn.relu(nn.Dense(128)(x)))


@jax.jit
def train_step(ts, x, y):
    def loss_fn(p):
        return optax.softmax_cross_entropy_with_integer_labels(ts.apply_fn({"params": p}, x), y).mean()
    loss, g = jax.value_and_grad(loss_fn)(ts.params)
    return ts.apply_gradients(grads=g), loss


@jax.jit
def accuracy(ts, x, y):
    return (ts.apply_fn({"params": ts.params}, x).argmax(-1) == y).mean()


rng = np.random.default_rng(0)
protos = rng.normal(size=(10, 28, 28, 1)).astype(np.float32)
labels = rng.integers(0, 10, N + 1024).astype(np.int32)
images = 0.13 * protos[labels] + rng.normal(size=(N + 1024, 28, 28, 1)).astype(np.float32)
loader = Loader(images[:N], labels[:N], B)
model = CNN()
params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 28, 28, 1)))["params"]
ts = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))


def forever(loader):
    while True:
        yield from loader


stream = forever(loader)
for step in range(1, STEPS + 1):
    x, y = next(stream) if FIXED else next(iter(loader))  # fault
    ts, loss = train_step(ts, x, y)  # fault
    if step % 125 == 0:
        print("step", step, "loss", float(loss), "test acc", float(accuracy(ts, images[N:], labels[N:])), flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
