"""A deep but narrow network in flax.nnx trains at a few dozen steps per second; making the layers or the batch smaller does not make it faster.

Truth: nnx.jit flattens and rebuilds the graph of the many small modules (and the optimizer) in Python in each call; this overhead is several times the compute of the step.
Advice: use nnx.cached_partial, or nnx.split once and a plain jax.jit step over the state (functional training loop).
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
WORDS = (r"python|host|overhead|dispatch|travers|flatten", r"nnx|split|cached_partial|graph|jax\.jit|call|small")
BLOCKS, WIDTH, BATCH, STEPS = 30, 16, 16, 200


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return x + 0.2 * self.down(nnx.relu(self.up(self.norm(x))))


class Deep(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([Block(rngs) for _ in range(BLOCKS)])
        self.head = nnx.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)[:, 0]


def train_step(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
    optimizer.update(model, grads)
    return loss


model = Deep(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.sgd(1e-3, momentum=0.9), wrt=nnx.Param)
if FIXED:
    graph, state = nnx.split((model, optimizer))

    @jax.jit
    def pure_step(state, x, y):
        model, optimizer = nnx.merge(graph, state)
        loss = train_step(model, optimizer, x, y)
        return nnx.state((model, optimizer)), loss
else:
    jitted = nnx.jit(train_step)  # fault

rng = np.random.default_rng(0)
times = []
for step in range(STEPS):
    x = rng.standard_normal((BATCH, WIDTH), dtype=np.float32)
    y = np.sin(x.sum(axis=1))
    t = time.perf_counter()
    if FIXED:
        state, loss = pure_step(state, x, y)
    else:
        loss = jitted(model, optimizer, x, y)  # fault
    dispatched = time.perf_counter()
    loss.block_until_ready()
    times.append((dispatched - t, time.perf_counter() - dispatched))
dispatch, rest = np.median(np.array(times[2:]), axis=0)
print(f"loss {float(loss):.4f}: {1e3 * dispatch:.1f} ms in the call, {1e3 * rest:.1f} ms waiting for the result")
lost = 0.0
if not FIXED:  # the share of the graph work: what nnx.jit does around the compiled call
    t = time.perf_counter()
    for _ in range(20):
        graph, state = nnx.split((model, optimizer))
        nnx.update((model, optimizer), state)
    lost = (time.perf_counter() - t) / 20 * STEPS
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(lost, 3)}))
