"""A regression model in flax nnx, trained with a plain jax.jit over the split state, dropout included.

Structure from the flax nnx guides (functional training loop in the performance guide).
"""
import time
T0 = time.perf_counter()
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

STEPS, BATCH, DIM = 1500, 256, 32


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(DIM, 256, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(256, 256, rngs=rngs)
        self.last = nnx.Linear(256, 1, rngs=rngs)

    def __call__(self, x):
        x = self.dropout(nnx.gelu(self.first(x)))
        return self.last(nnx.gelu(self.second(x)))[:, 0]


model = MLP(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
graph, state = nnx.split((model, optimizer))


@jax.jit
def train_step(state, x, y):
    model, optimizer = nnx.merge(graph, state)
    model.train()
    loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
    optimizer.update(model, grads)
    return nnx.state((model, optimizer)), loss


@jax.jit
def evaluate(state, x, y):
    model, _ = nnx.merge(graph, state)
    model.eval()
    return jnp.mean((model(x) - y) ** 2)


rng = np.random.default_rng(0)
weights = rng.standard_normal((DIM, 3)).astype(np.float32) / 6


def sample(count):
    x = rng.standard_normal((count, DIM), dtype=np.float32)
    return x, np.sin(x @ weights).sum(axis=1)


x_test, y_test = sample(2048)
for step in range(STEPS):
    x, y = sample(BATCH)
    state, loss = train_step(state, x, y)
    if step % 250 == 249:
        print(f"step {step + 1}: train {float(loss):.4f}, test {float(evaluate(state, x_test, y_test)):.4f}")
nnx.update((model, optimizer), state)
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}))
