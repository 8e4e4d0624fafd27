"""Heat in a plate with an implicit scheme. "Each step costs as much as the whole set-up of the matrix should."

Truth: the matrix of the implicit scheme never changes, but jnp.linalg.solve factorises it (O(n^3)) in each time step.
Advice: factorise once (lu_factor or cho_factor before the loop), in the step only the triangular solves (lu_solve).
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
from jax.scipy.linalg import lu_factor, lu_solve

FIXED = "--fixed" in sys.argv
WORDS = (r"factor|solve|linalg|lu\b|invarian|same matrix|constant matrix", r"once|each step|every step|repeat|again|hoist|outside|before|per step|factoris|factoriz|reuse")
SIDE, STEPS = 24, 400
N = SIDE * SIDE


def implicit_matrix(dt=0.2):
    i = jnp.arange(SIDE)
    line = 2.0 * jnp.eye(SIDE) - (jnp.abs(i[:, None] - i) == 1)
    laplace = jnp.kron(line, jnp.eye(SIDE)) + jnp.kron(jnp.eye(SIDE), line)
    return jnp.eye(N) + dt * laplace


def source(t):
    y, x = jnp.mgrid[0:SIDE, 0:SIDE] / SIDE
    cx, cy = 0.5 + 0.3 * jnp.cos(0.1 * t), 0.5 + 0.3 * jnp.sin(0.1 * t)
    return jnp.exp(-60 * ((x - cx) ** 2 + (y - cy) ** 2)).reshape(-1)


@jax.jit
def step(matrix, u, t):
    rhs = u + 0.2 * source(t)
    if FIXED:
        u = lu_solve(matrix, rhs)
    else:
        u = jnp.linalg.solve(matrix, rhs)  # fault
    return u, u.max()


def main():
    matrix = implicit_matrix()
    factors = jax.block_until_ready(lu_factor(matrix))
    t = time.perf_counter()
    for _ in range(5):
        jax.block_until_ready(lu_factor(matrix))
    one = (time.perf_counter() - t) / 5
    u = jnp.zeros(N)
    for n in range(STEPS):
        u, hottest = step(factors if FIXED else matrix, u, jnp.float32(n))  # fault
        if n % 50 == 0:
            print(f"step {n} hottest {float(hottest):.4f}")
    jax.block_until_ready(u)
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0 if FIXED else one * STEPS}))


main()
