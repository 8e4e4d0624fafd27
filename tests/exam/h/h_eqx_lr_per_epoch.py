"""Equinox regression of turbine power, cosine learning rate set once per epoch. "Every epoch starts with a pause, on the cluster it is minutes in total."

Truth: the learning rate goes into an eqx.filter_jit function as a Python float, which filter_jit holds for static; each new value compiles the step anew.
Advice: pass an array (jnp.asarray(lr)), or let an optax schedule inside the step compute it.
"""
import time
T0 = time.perf_counter()
import json
import math
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"recompil|compil|re-?trac|cache miss", r"lr|learning.rate|python (float|scalar|number)|static|float")

EPOCHS, STEPS, BATCH = 12, 70, 512


class Net(eqx.Module):
    layers: list
    norm: eqx.nn.LayerNorm

    def __init__(self, key):
        ks = jax.random.split(key, 4)
        sizes = [24, 192, 192, 192]
        self.layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes, sizes[1:] + [1], ks)]
        self.norm = eqx.nn.LayerNorm(192)

    def __call__(self, x):
        x = jax.nn.gelu(self.layers[0](x))
        for layer in self.layers[1:-1]:
            x = x + jax.nn.gelu(layer(self.norm(x)))
        return self.layers[-1](x)[0]


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())


@eqx.filter_jit
def train_step(model, opt_state, x, y, lr):
    def loss_fn(m):
        return jnp.mean((jax.vmap(m)(x) - y) ** 2)

    loss, grads = eqx.filter_value_and_grad(loss_fn)(model)
    updates, opt_state = tx.update(grads, opt_state)
    updates = jax.tree.map(lambda u: -lr * u, updates)
    return eqx.apply_updates(model, updates), opt_state, loss


def main():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS * BATCH, 24)).astype(np.float32)
    y = (np.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2]).astype(np.float32)
    model = Net(jax.random.PRNGKey(0))
    opt_state = tx.init(eqx.filter(model, eqx.is_array))
    lost, first = 0.0, None
    for epoch in range(EPOCHS):
        lr = 1e-3 * 0.5 * (1 + math.cos(math.pi * epoch / EPOCHS))
        if FIXED:
            lr = jnp.asarray(lr, jnp.float32)
        order, total = rng.permutation(len(x)), 0.0
        for s in range(STEPS):
            idx = order[s * BATCH:(s + 1) * BATCH]
            t = time.perf_counter()
            model, opt_state, loss = train_step(model, opt_state, x[idx], y[idx], lr)  # fault
            if s == 0 and epoch:
                lost += time.perf_counter() - t
            total = total + loss
        if epoch % 4 == 3:
            print(f"epoch {epoch} loss {float(total) / STEPS:.4f}")
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else lost}))


main()
