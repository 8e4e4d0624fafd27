"""Parameter inference for a neural rate model (coupled ODEs) from noisy observations. "The first iteration takes forever, then it flies."

Truth: the time integration is a Python for loop inside the jitted loss; the program is unrolled into a huge program and tracing and compiling (with the gradient) take most of the run.
Advice: integrate with jax.lax.scan (or fori_loop), so that the step is traced and compiled once.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"unroll|python.*loop|for.loop|\bscan\b|fori_loop|equations|large program|huge", r"compil|trac")
STEPS, DIM, DT = 20, 40, 0.1
COUPLE = jax.random.normal(jax.random.key(5), (DIM, DIM)) * DIM ** -0.5


def rhs(x, p):
    return p["coupling"] * jnp.tanh(x @ COUPLE) - p["damping"] * x + p["forcing"]


def rk4(x, p):
    k1 = rhs(x, p)
    k2 = rhs(x + DT / 2 * k1, p)
    k3 = rhs(x + DT / 2 * k2, p)
    k4 = rhs(x + DT * k3, p)
    return x + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def simulate(x, p):
    if FIXED:
        return jax.lax.scan(lambda c, _: (rk4(c, p),) * 2, x, None, length=STEPS)[1]
    path = []
    for _ in range(STEPS):  # fault
        x = rk4(x, p)  # fault
        path.append(x)
    return jnp.stack(path)


def loss_fn(p, x0, observed):
    path = simulate(x0, p)  # fault
    return jnp.mean((path[::2] - observed) ** 2) + 1e-5 * sum(jnp.sum(v ** 2) for v in p.values())


tx = optax.adam(2e-2)


@jax.jit
def fit_step(p, opt, x0, observed):
    loss, grads = jax.value_and_grad(loss_fn)(p, x0, observed)  # fault
    updates, opt = tx.update(grads, opt, p)
    return optax.apply_updates(p, updates), opt, loss


@jax.jit
def truth(key):
    k1, k2 = jax.random.split(key)
    p = {"coupling": jnp.float32(1.0), "damping": jnp.float32(1.0), "forcing": jnp.float32(0.5)}
    x0 = jax.random.normal(k1, (16, DIM))
    path = jax.lax.scan(lambda c, _: (rk4(c, p),) * 2, x0, None, length=STEPS)[1][::2]
    return x0, path + 0.05 * jax.random.normal(k2, path.shape)


x0, observed = truth(jax.random.key(0))
p = {"coupling": jnp.float32(0.7), "damping": jnp.float32(1.4), "forcing": jnp.float32(0.2)}
opt = tx.init(p)
t = time.perf_counter()
p, opt, loss = fit_step(p, opt, x0, observed)  # fault
jax.block_until_ready(loss)
first = time.perf_counter() - t
for i in range(300):
    p, opt, loss = fit_step(p, opt, x0, observed)
print({k: round(float(v), 3) for k, v in p.items()}, "loss", float(loss))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": first - 0.6 if not FIXED else None}))
