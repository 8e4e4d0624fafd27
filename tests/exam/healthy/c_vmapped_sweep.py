"""A sweep over learning rates and seeds as one vmapped program with optax.inject_hyperparams. Structure: the "parallel training with vmap" tutorials, rebuilt."""
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
tx = optax.inject_hyperparams(optax.adam)(learning_rate=1e-3)


def init(key, lr):
    a, b = jax.random.split(key)
    params = {"a": jax.random.normal(a, (16, 64)) / 4, "b": jax.random.normal(b, (64,)) / 8}
    opt_state = tx.init(params)
    opt_state.hyperparams["learning_rate"] = lr
    return params, opt_state


def loss_fn(params, x, y):
    return jnp.mean((jax.nn.relu(x @ params["a"]) @ params["b"] - y) ** 2)


def epoch(state, xs, ys):
    def body(state, batch):
        params, opt_state = state
        loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
        updates, opt_state = tx.update(grads, opt_state)
        return (optax.apply_updates(params, updates), opt_state), loss

    state, losses = jax.lax.scan(body, state, (xs, ys))
    return state, losses.mean()


def main():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 128, 16)).astype(np.float32)
    y = jnp.asarray(np.abs(x[..., 0]) + x[..., 1])
    x = jnp.asarray(x)
    rates = jnp.repeat(jnp.array([3e-4, 1e-3, 3e-3, 1e-2]), 3)
    states = jax.jit(jax.vmap(init))(jax.random.split(jax.random.key(0), 12), rates)
    run = jax.jit(jax.vmap(epoch, in_axes=(0, None, None)), donate_argnums=0)
    for n in range(40):
        states, losses = run(states, x, y)
        if n % 10 == 9:
            print(f"epoch {n + 1}", np.round(np.asarray(losses), 4))
    print("best rate", float(rates[int(jnp.argmin(losses))]))
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0}))


main()
