"""Fine-tuning loop by steps instead of epochs, with a PyTorch-like loader. "Training loss goes to zero at once, validation accuracy stays at chance."

Truth: next(iter(loader)) in the loop makes a new iterator in each step, so every step trains on the same first batch.
Advice: make the iterator once outside the loop (it = iter(loader)) and restart it at StopIteration with a new shuffle.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

FIXED = "--fixed" in sys.argv
WORDS = (r"same|identical|repeat|not advanc|never (advanc|chang)|unchanged|first batch", r"batch|data|input|iter|argument|value")
STEPS = 400


class DataLoader:
    def __init__(self, x, y, batch_size, seed=0):
        self.x, self.y, self.batch_size, self.seed, self.epoch = x, y, batch_size, seed, 0

    def __iter__(self):
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.x))
        for i in range(0, len(order) - self.batch_size + 1, self.batch_size):
            idx = order[i:i + self.batch_size]
            yield self.x[idx], self.y[idx]
        self.epoch += 1


class Head(nnx.Module):
    def __init__(self, rngs):
        self.l1 = nnx.Linear(256, 768, rngs=rngs)
        self.l2 = nnx.Linear(768, 768, rngs=rngs)
        self.l3 = nnx.Linear(768, 16, rngs=rngs)

    def __call__(self, x):
        return self.l3(nnx.relu(self.l2(nnx.relu(self.l1(x)))))


@nnx.jit
def train_step(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(
        lambda m: optax.softmax_cross_entropy_with_integer_labels(m(x), y).mean())(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def accuracy(model, x, y):
    return (model(x).argmax(-1) == y).mean()


def forever(loader):
    while True:
        yield from loader


def main():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(16, 256)).astype(np.float32)
    y = rng.integers(0, 16, 20_000).astype(np.int32)
    x = 0.25 * centres[y] + rng.normal(size=(20_000, 256)).astype(np.float32)
    train = DataLoader(x[:16_000], y[:16_000], 256)
    model = Head(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(3e-4), wrt=nnx.Param)
    stream = forever(train) if FIXED else None
    for step in range(STEPS):
        if FIXED:
            xb, yb = next(stream)
        else:
            xb, yb = next(iter(train))  # fault
        loss = train_step(model, optimizer, xb, yb)  # fault
        if step % 100 == 99:
            acc = accuracy(model, x[16_000:], y[16_000:])
            print(f"step {step} loss {float(loss):.4f} val {float(acc):.3f}")
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))


main()
