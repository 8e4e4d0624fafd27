"""Flax NNX convolutional classifier. "It runs without an error, but the loss stays where it began whatever the learning rate."

Truth: the train step is wrapped in jax.jit, not nnx.jit: the model and the optimizer are updated as copies inside the trace and the update is thrown away.
Advice: use nnx.jit (which propagates the state), or return the updated state (nnx.split/merge, nnx.update) from the jitted function.
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
WORDS = (r"param|weight|model|state|loss|update|gradient|optimi[sz]er",
         r"(not|n't|never|no) (\w+ )?(chang|mov|updat|us|improv|kept|learn|return|decreas|fall)|unchanged|constant|same|frozen|discard|thrown|dropped|lost|stuck|flat|dead|unused|stays|nnx\.jit")


class CNN(nnx.Module):
    def __init__(self, rngs):
        self.c1 = nnx.Conv(1, 16, (3, 3), strides=2, rngs=rngs)
        self.c2 = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
        self.d1 = nnx.Linear(32 * 49, 256, rngs=rngs)
        self.d2 = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.c1(x))
        x = nnx.relu(self.c2(x))
        x = nnx.relu(self.d1(x.reshape(x.shape[0], -1)))
        return self.d2(x)


def loss_fn(model, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()


jit = nnx.jit if FIXED else jax.jit  # fault


@jit  # fault
def train_step(model, optimizer, x, y):  # fault
    loss, grads = nnx.value_and_grad(loss_fn)(model, x, y)
    optimizer.update(model, grads)  # fault
    return loss


def make_data(rng, n):
    proto = rng.normal(size=(10, 28, 28, 1))
    y = rng.integers(0, 10, n)
    return (proto[y] + 9 * rng.normal(size=(n, 28, 28, 1))).astype(np.float32), y.astype(np.int32)


rng = np.random.default_rng(0)
images, labels = make_data(rng, 8192)
model = CNN(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
BATCH, STEPS = 256, 700
losses, order = [], []
for step in range(STEPS):
    if len(order) < BATCH:
        order = rng.permutation(len(images))
    idx, order = order[:BATCH], order[BATCH:]
    loss = train_step(model, optimizer, images[idx], labels[idx])  # fault
    losses.append(loss)
    if step % 140 == 139:
        print(step + 1, "loss", float(jnp.mean(jnp.stack(losses[-140:]))), flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
