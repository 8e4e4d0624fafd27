"""Parameters of a two-body orbit from noisy positions: RK4 in a scan, gradient through it, Adam from optax, several starts by vmap; structure as in diffrax's and optax's examples."""
import time
T0 = time.perf_counter()
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax

STEPS, STARTS = 200, 4


def orbit(params):
    def slope(s):
        r = jnp.sqrt(s[0] ** 2 + s[1] ** 2 + 1e-4)
        return jnp.stack([s[2], s[3], -params["mass"] * s[0] / r**3, -params["mass"] * s[1] / r**3])

    def rk4(s, _):
        dt = 0.02
        k1 = slope(s)
        k2 = slope(s + dt / 2 * k1)
        k3 = slope(s + dt / 2 * k2)
        k4 = slope(s + dt * k3)
        s = s + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return s, s[:2]

    start = jnp.array([1.0, 0.0, 0.0, 0.0]).at[2:].set(params["velocity"])
    return jax.lax.scan(rk4, start, None, length=STEPS)[1]


def loss(params, seen):
    return jnp.mean((orbit(params) - seen) ** 2)


optimizer = optax.adam(optax.exponential_decay(0.02, 200, 0.5))


@jax.jit
def fit_some(params, state, seen):
    def step(carry, _):
        params, state = carry
        value, grad = jax.vmap(jax.value_and_grad(loss), (0, None))(params, seen)
        updates, state = optimizer.update(grad, state)
        return (optax.apply_updates(params, updates), state), value
    (params, state), values = jax.lax.scan(step, (params, state), None, length=50)
    return params, state, values[-1]


def main():
    truth = {"mass": jnp.float32(1.1), "velocity": jnp.array([0.1, 0.95])}
    seen = np.asarray(jax.jit(orbit)(truth)) + 0.01 * np.random.default_rng(0).normal(size=(STEPS, 2)).astype(np.float32)
    key = jax.random.key(0)
    params = {"mass": 1.0 + 0.1 * jax.random.normal(key, (STARTS,)),
              "velocity": jnp.array([0.0, 1.0]) + 0.05 * jax.random.normal(jax.random.fold_in(key, 1), (STARTS, 2))}
    state = optimizer.init(params)
    for n in range(7):
        params, state, values = fit_some(params, state, seen)
        if n % 4 == 0:
            print(f"{(n + 1) * 50} steps, best loss {float(values.min()):.6f}")
    best = int(jnp.argmin(values))
    print("mass", float(params["mass"][best]))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0}))


main()
