"""The learning-rate sweep spends longer starting each trial than training it; every trial sits still for most of a second before its first loss appears.

Truth: each trial builds a new optax optimizer and a new jitted step that closes over it, so the same training step is compiled again for every trial.
Advice: compile the step once; carry learning rate and weight decay as data (optax.inject_hyperparams) instead of as Python constants of a new jitted function.
"""
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"jit|closure|optimi[sz]er|hyperparam|learning rate|new function|each trial|every trial")
WIDTHS = (32, 128, 96, 64, 48, 1)


def init(key):
    keys = jax.random.split(key, len(WIDTHS) - 1)
    return [{"w": jax.random.normal(k, (a, b)) / np.sqrt(a), "b": jnp.zeros(b)} for k, a, b in zip(keys, WIDTHS, WIDTHS[1:])]


def loss_fn(params, x, y):
    for layer in params[:-1]:
        x = jax.nn.gelu(x @ layer["w"] + layer["b"])
    out = x @ params[-1]["w"] + params[-1]["b"]
    return jnp.mean((out[:, 0] - y) ** 2)


def build_trial(lr, wd):
    tx = optax.inject_hyperparams(optax.adamw)(learning_rate=lr, weight_decay=wd)

    @jax.jit  # fault
    def step(params, opt_state, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return tx, step


def main():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((1024, WIDTHS[0])), jnp.float32)
    y = jnp.sin(x[:, 0]) + 0.3 * x[:, 1] * x[:, 2]
    params0 = jax.jit(init)(jax.random.key(1))
    shared = build_trial(1e-3, 1e-4) if FIXED else None
    best, lost = (np.inf, None), 0.0
    for trial, (lr, wd) in enumerate((lr, wd) for lr in (3e-4, 1e-3, 3e-3, 1e-2) for wd in (0.0, 1e-4, 1e-2)):
        tx, step = shared or build_trial(lr, wd)  # fault
        params, opt_state = params0, tx.init(params0)
        opt_state.hyperparams.update(learning_rate=jnp.float32(lr), weight_decay=jnp.float32(wd))
        for i in range(100):
            t0 = time.perf_counter()
            params, opt_state, loss = step(params, opt_state, x, y)
            if i == 0 and trial > 0 and not FIXED:
                lost += time.perf_counter() - t0
        best = min(best, (float(loss), (lr, wd)))
        print(f"trial {trial}: lr={lr:g} wd={wd:g} loss={float(loss):.4f}")
    print("best", best)
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))


main()
