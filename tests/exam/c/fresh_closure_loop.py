"""Calibrating the pendulum takes a quarter of a minute or more although one simulation is only a few thousand cheap steps; it never gets faster after the first candidate.

Truth: `simulate` runs lax.while_loop outside jit with body functions defined anew in each call, so every candidate compiles the loop again.
Advice: put jax.jit around `simulate` and pass the candidate's parameters as arguments, so the loop is compiled once.
"""
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"closure|while_loop|jit|body|lambda|new function|same program|again")


def simulate(theta, forcing):
    damping, stiffness = theta[0], theta[1]

    def accel(q, v, t):
        drive = forcing[jnp.minimum((t * 50).astype(jnp.int32), forcing.shape[0] - 1)]
        return -damping * v - stiffness * jnp.sin(q) + drive

    def rk4(state):
        i, q, v, energy = state
        t, h = i * 0.005, 0.005
        k1q, k1v = v, accel(q, v, t)
        k2q, k2v = v + h / 2 * k1v, accel(q + h / 2 * k1q, v + h / 2 * k1v, t + h / 2)
        k3q, k3v = v + h / 2 * k2v, accel(q + h / 2 * k2q, v + h / 2 * k2v, t + h / 2)
        k4q, k4v = v + h * k3v, accel(q + h * k3q, v + h * k3v, t + h)
        q = q + h / 6 * (k1q + 2 * k2q + 2 * k3q + k4q)
        v = v + h / 6 * (k1v + 2 * k2v + 2 * k3v + k4v)
        return i + 1, q, v, energy + h * jnp.mean(v * v)

    def alive(state):
        return (state[0] < 20_000) & (jnp.max(jnp.abs(state[1])) < 50.0)

    q0 = jnp.linspace(0.1, 1.5, 64)
    return jax.lax.while_loop(alive, rk4, (0, q0, jnp.zeros(64), 0.0))  # fault


def main():
    rng = np.random.default_rng(3)
    forcing = jnp.asarray(0.2 * rng.standard_normal(2000), jnp.float32)
    run = jax.jit(simulate) if FIXED else simulate
    target, lost, scores = 0.8, 0.0, []
    for n, theta in enumerate(rng.uniform((0.05, 0.5), (0.5, 4.0), size=(16, 2)).astype(np.float32)):
        t0 = time.perf_counter()
        steps, _, _, energy = run(theta, forcing)  # fault
        called = time.perf_counter() - t0
        scores.append((abs(float(energy) - target), theta.tolist()))
        if n and not FIXED:
            lost += called
    print("best candidate", min(scores), "steps", int(steps))
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))


main()
