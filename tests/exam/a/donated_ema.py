"""Training with an exponential moving average of the parameters crashes at the end of the first phase with "Array has been deleted", some hundred steps after the code that is to blame.

Truth: ema starts as an alias of params, and the train step donates params, so the very first step deletes the buffers that ema still refers to; it is only noticed when the average is first used.
Advice: start the average from copies (jax.tree.map(jnp.copy, params)), or do not donate params.
"""
import time
T0 = time.perf_counter()
import json
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"donat|deleted", r"alias|copy|copies|reuse|used (again|after)|ema|params|donat")
STEPS, WARMUP, BATCH = 260, 180, 48


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (24, 24):
            x = nn.relu(nn.GroupNorm(num_groups=4)(nn.Conv(width, (5,))(x)))
            x = nn.avg_pool(x, (2,), (2,))
        return nn.Dense(1)(x.mean(axis=1))[:, 0]


model = Net()
tx = optax.adam(1e-3)


def train_step(params, opt, x, y):
    def loss_fn(p):
        return jnp.mean((model.apply(p, x) - y) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt = tx.update(grads, opt)
    return optax.apply_updates(params, updates), opt, loss


train_step = jax.jit(train_step, donate_argnums=(0, 1))  # fault


@jax.jit
def update_ema(ema, params):
    return optax.incremental_update(params, ema, 0.01)


def main():
    rng = np.random.default_rng(0)
    params = model.init(jax.random.key(0), jnp.zeros((1, 96, 4)))
    opt = tx.init(params)
    ema = jax.tree.map(jnp.copy, params) if FIXED else params  # fault
    for step in range(STEPS):
        x = rng.standard_normal((BATCH, 96, 4), dtype=np.float32)
        y = np.abs(np.fft.rfft(x[..., 0], axis=1))[:, 3] / 10
        params, opt, loss = train_step(params, opt, x, y)
        if step == WARMUP:
            print(f"loss {float(loss):.4f}, starting the average", flush=True)
        if step >= WARMUP:
            ema = update_ema(ema, params)  # fault
    print(f"final loss {float(loss):.4f}, ema norm {float(optax.tree.norm(ema)):.3f}")


try:
    main()
finally:
    print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0 if FIXED else None}), flush=True)
