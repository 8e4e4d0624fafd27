"""The siamese network learns well for a while and then every loss is NaN; the data contain no NaN at all.

Truth: some pairs are exact duplicates, their embeddings are equal, and the gradient of the Euclidean norm at zero is 0/0, so one batch with a duplicate turns all weights into NaN.
Advice: make the distance differentiable at zero (sqrt of the sum of squares plus a small epsilon, or the squared distance), and stop when the loss is not finite.
"""
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"nan|not finite|non-?finite",)


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(256)(x))
        x = nn.relu(nn.Dense(256)(x))
        return nn.Dense(32)(x)


def distance(a, b):
    if FIXED:
        return jnp.sqrt(jnp.sum((a - b) ** 2, axis=-1) + 1e-8)
    return jnp.linalg.norm(a - b, axis=-1)  # fault


def main():
    model, tx = Encoder(), optax.adam(3e-4)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 40)))
    opt_state = tx.init(params)

    def loss_fn(params, a, b, same):
        d = distance(model.apply(params, a), model.apply(params, b))
        return jnp.mean(jnp.where(same, d**2, jnp.maximum(0.0, 1.0 - d) ** 2))

    @jax.jit
    def step(params, opt_state, a, b, same):
        loss, grads = jax.value_and_grad(loss_fn)(params, a, b, same)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((50, 40)).astype(np.float32)
    for i in range(300):
        left, right = rng.integers(0, 50, 256), rng.integers(0, 50, 256)
        right[:128] = left[:128]
        a = centres[left] + 0.3 * rng.standard_normal((256, 40)).astype(np.float32)
        b = centres[right] + 0.3 * rng.standard_normal((256, 40)).astype(np.float32)
        if i >= 120:
            b[3] = a[3]  # the second half of the catalogue holds a few photographs twice
        params, opt_state, loss = step(params, opt_state, a, b, left == right)
        if i % 60 == 59:
            print(f"step {i + 1} loss {float(loss):.4f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": None if not FIXED else 0}))


main()
