"""Metric embedding (MDS): learn coordinates whose distances match a given matrix, with Equinox. "The loss is fine at the first step, then it is nan."

Truth: sqrt of the zero diagonal has an infinite derivative; the jnp.where around it hides the value but not the gradient (inf * 0 = nan), so all coordinates are nan after the first update.
Advice: make the argument safe before the sqrt (double where), e.g. jnp.where(eye, 1.0, d2) inside.
"""
import time
T0 = time.perf_counter()
import json
import sys
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"\bnans?\b|non-?finite|not finite|not a number|\binf", r"gradient|param|loss|sqrt|coord|weight|point|step|value|output|result|leaf|state")
N, DIM, STEPS = 500, 8, 500


class Embedding(eqx.Module):
    points: jax.Array
    scale: jax.Array

    def __init__(self, key):
        self.points = jax.random.normal(key, (N, DIM))
        self.scale = jnp.ones(())

    def distances(self):
        diff = self.points[:, None] - self.points[None]
        d2 = jnp.sum(diff**2, -1)
        eye = jnp.eye(N, dtype=bool)
        if FIXED:
            return self.scale * jnp.where(eye, 0.0, jnp.sqrt(jnp.where(eye, 1.0, d2) + 1e-12))
        return self.scale * jnp.where(eye, 0.0, jnp.sqrt(d2))  # fault


def stress(model, target, weights):
    return jnp.sum(weights * (model.distances() - target) ** 2) / jnp.sum(weights)  # fault


tx = optax.adam(3e-2)


@eqx.filter_jit
def step(model, opt_state, target, weights):
    loss, grads = eqx.filter_value_and_grad(stress)(model, target, weights)  # fault
    updates, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


rng = np.random.default_rng(0)
true = rng.normal(size=(N, DIM)) * 2
target = jnp.asarray(np.sqrt(((true[:, None] - true[None]) ** 2).sum(-1)), jnp.float32)
weights = jnp.asarray(rng.random((N, N)) < 0.7, jnp.float32)
model = Embedding(jax.random.key(0))
opt_state = tx.init(eqx.filter(model, eqx.is_array))
for i in range(STEPS):
    model, opt_state, loss = step(model, opt_state, target, weights)  # fault
    if i % 100 == 0 or i == STEPS - 1:
        print("step", i, "stress", float(loss), flush=True)
print("mean distance", float(jnp.mean(jnp.abs(model.points))))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
