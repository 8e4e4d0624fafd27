"""A deep, narrow Flax NNX model. Doubling the batch changes nothing about the step time, and the CPU profile of the
process is all Python, not matrix products, although the step is under `nnx.jit`.

Truth: `nnx.jit` walks the whole object graph of model and optimizer in Python on the way in and out of each call; that takes longer than the step itself.
Advice: split once (`nnx.split`) and carry the state through a plain `jax.jit`, merging inside it (or `nnx.cached_partial`).

Source: google/flax#4045 (discussion google/flax#4224).
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import optax
from flax import nnx

FIXED = "--fixed" in sys.argv
WORDS = (r"python|host|dispatch|overhead|nnx|graph|call", r"nnx|split|merge|jax\.jit|graph|pytree|leaves|flatten|travers|scan|cached")
BLOCKS, WIDTH, BATCH, STEPS = 16, 24, 32, 250


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.relu(self.up(self.norm(x))))


class Net(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([Block(rngs) for _ in range(BLOCKS)])
        self.head = nnx.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)[:, 0]


def step_body(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def train_step(model, optimizer, x, y):
    return step_body(model, optimizer, x, y)


model = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
x = jax.random.normal(jax.random.key(0), (BATCH, WIDTH))
y = jnp.sin(x.sum(axis=1))
graph, state = nnx.split((model, optimizer))


@jax.jit
def pure_step(state, x, y):
    model, optimizer = nnx.merge(graph, state)
    loss = step_body(model, optimizer, x, y)
    return nnx.state((model, optimizer)), loss


def one_step():
    global state
    if FIXED:
        state, loss = pure_step(state, x, y)
    else:
        loss = train_step(model, optimizer, x, y)  # fault
    return loss


one_step().block_until_ready()
for step in range(STEPS):
    loss = one_step()
    loss.block_until_ready()
print("loss", float(loss))
lost = 0.0
if not FIXED:  # own clock: one walk over the objects on the way in, one on the way out
    t = time.perf_counter()
    for _ in range(10):
        graph, state = nnx.split((model, optimizer))
        nnx.update((model, optimizer), state)
    lost = (time.perf_counter() - t) / 10 * STEPS
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))
