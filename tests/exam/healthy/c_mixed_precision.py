"""Mixed precision training: float32 master weights, bfloat16 compute, loss in float32. Structure: jmp and the flax ImageNet example, rebuilt small."""
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

START = time.perf_counter()


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (256, 256):
            x = nn.gelu(nn.Dense(width, dtype=jnp.bfloat16)(x))
        return nn.Dense(10, dtype=jnp.bfloat16)(x).astype(jnp.float32)


model, tx = Net(), optax.adamw(1e-3)


@jax.jit
def step(params, opt_state, x, y):
    def loss_fn(p):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(p, x), y).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def main():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8192, 64)).astype(np.float32)
    y = (x @ rng.standard_normal((64, 10))).argmax(1)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 64)))
    opt_state = tx.init(params)
    for epoch in range(10):
        for rows in rng.permutation(8192).reshape(-1, 256):
            params, opt_state, loss = step(params, opt_state, x[rows], y[rows])
        print(f"epoch {epoch} loss {float(loss):.4f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0}))


main()
