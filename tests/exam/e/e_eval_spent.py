"""Flax NNX training with an evaluation after each epoch, keeping the best model. "Validation accuracy is nan from the second epoch on, and the best checkpoint is always the first."

Truth: the validation batches are a one-shot iterator made before the epochs' loop; the first evaluation exhausts it, later evaluations see no batch at all and take the mean of nothing (nan), and `nan > best` is never true.
Advice: build the iterator anew for each evaluation (a function or a list of batches).
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
WORDS = (r"nan|empty|exhaust|spent|no batch|zero batch|0 batch|nothing|not.* advanc|one.?shot|generator|iterator", r"nan|exhaust|empty|iterator|generator|evaluat|batch")
rng = np.random.default_rng(0)
W = rng.standard_normal((64, 10)).astype(np.float32)


def make(n):
    x = rng.standard_normal((n, 64)).astype(np.float32)
    return x, (np.tanh(x) @ W).argmax(-1).astype(np.int32)


train_x, train_y = make(40000)
val_x, val_y = make(4000)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b, self.c = nnx.Linear(64, 512, rngs=rngs), nnx.Linear(512, 512, rngs=rngs), nnx.Linear(512, 10, rngs=rngs)

    def __call__(self, x):
        return self.c(nnx.relu(self.b(nnx.relu(self.a(x)))))


@nnx.jit
def train_step(model, opt, x, y):
    def loss_fn(m):
        return optax.softmax_cross_entropy_with_integer_labels(m(x), y).mean()
    loss, grads = nnx.value_and_grad(loss_fn)(model)
    opt.update(model, grads)
    return loss


@nnx.jit
def correct(model, x, y):
    return (model(x).argmax(-1) == y).mean()


def evaluate(model, batches):
    hits = [correct(model, x, y) for x, y in batches]  # fault
    return float(np.mean(jax.device_get(hits)))  # fault


model = Net(nnx.Rngs(0))
opt = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
val_batches = ((val_x[i:i + 500], val_y[i:i + 500]) for i in range(0, len(val_x), 500))  # fault
if FIXED:
    val_batches = list(val_batches)
best, best_epoch = -1.0, None
for epoch in range(6):
    order = rng.permutation(len(train_x))
    for i in range(0, len(order) - 511, 512):
        loss = train_step(model, opt, train_x[order[i:i + 512]], train_y[order[i:i + 512]])
    accuracy = evaluate(model, val_batches)  # fault
    if accuracy > best:
        best, best_epoch = accuracy, epoch
        kept = jax.tree.map(jnp.copy, nnx.state(model, nnx.Param))
    print(f"epoch {epoch} loss {float(loss):.3f} val accuracy {accuracy:.3f}")
print("best epoch", best_epoch, "accuracy", best)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
