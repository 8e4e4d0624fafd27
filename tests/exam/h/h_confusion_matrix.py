"""NNX digit classifier which evaluates with a confusion matrix after each epoch. "Evaluation takes longer than training although it has no backward pass."

Truth: the confusion matrix is filled in a Python loop that indexes device arrays one element at a time; each index is a dispatch and a blocking read.
Advice: fetch predictions and labels once (np.asarray) and count with np.add.at / bincount, or count in the jitted eval step.
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
WORDS = (r"element|one (by|at)|index|per.item|scalar|item|loop|small (reads|transfers|dispatch)|many", r"int\(|read|fetch|transfer|dispatch|sync|device|host|eager")
N_TRAIN, N_TEST, BATCH, EPOCHS = 4096, 6144, 256, 10


class CNN(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(16, 32, (3, 3), rngs=rngs)
        self.out = nnx.Linear(32 * 9, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.conv1(x)), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.conv2(x)), (2, 2), (2, 2))
        return self.out(x.reshape(x.shape[0], -1))


@nnx.jit
def train_step(model, optimizer, x, y):
    def loss_fn(m):
        return optax.softmax_cross_entropy_with_integer_labels(m(x), y).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def predict(model, x):
    return jnp.argmax(model(x), -1)


def evaluate(model, x, y):
    confusion = np.zeros((10, 10), np.int64)
    for i in range(0, len(x), BATCH):
        preds, labels = predict(model, x[i:i + BATCH]), y[i:i + BATCH]
        if FIXED:
            np.add.at(confusion, (np.asarray(labels), np.asarray(preds)), 1)
        else:
            for j in range(len(labels)):
                confusion[int(labels[j]), int(preds[j])] += 1  # fault
    return confusion


def main():
    rng = np.random.default_rng(0)
    glyphs = rng.normal(size=(10, 12, 12, 1))
    y = rng.integers(0, 10, N_TRAIN + N_TEST).astype(np.int32)
    x = (glyphs[y] + 2.0 * rng.normal(size=(len(y), 12, 12, 1))).astype(np.float32)
    x_test, y_test = jnp.asarray(x[N_TRAIN:]), jnp.asarray(y[N_TRAIN:])
    model = CNN(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    in_eval = 0.0
    for epoch in range(EPOCHS):
        order = rng.permutation(N_TRAIN)
        for idx in np.split(order, N_TRAIN // BATCH):
            loss = train_step(model, optimizer, x[idx], y[idx])
        loss.block_until_ready()
        t = time.perf_counter()
        confusion = evaluate(model, x_test, y_test)  # fault
        in_eval += time.perf_counter() - t
        print(f"epoch {epoch} accuracy {np.trace(confusion) / N_TEST:.3f}")
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else 0.95 * in_eval}))


main()
