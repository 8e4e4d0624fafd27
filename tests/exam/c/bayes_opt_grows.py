"""Bayesian optimisation of a cheap function: every iteration takes about a second, though the Gaussian process has only a dozen points.

Truth: the arrays of observations grow by one row per iteration, so the jitted fit and acquisition see new shapes each time and are compiled again in every iteration.
Advice: allocate the observations at their final size (or in a few padded sizes) and pass a mask of the rows in use, so that shapes stay the same.
"""
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"shape|grow|size|pad|append|concat")
BUDGET, FIRST, DIM = 9, 6, 4


def kernel(theta, a, b):
    scaled = jnp.sum(((a[:, None] - b[None]) / jnp.exp(theta[:DIM])) ** 2, axis=-1)
    return jnp.exp(theta[DIM]) * jnp.exp(-0.5 * scaled)


def covariance(theta, x, mask):
    k = kernel(theta, x, x) * (mask[:, None] * mask[None])
    return k + jnp.diag(jnp.where(mask > 0, jnp.exp(theta[DIM + 1]) + 1e-4, 1.0))


def nll(theta, x, y, mask):
    chol = jnp.linalg.cholesky(covariance(theta, x, mask))
    white = jax.scipy.linalg.solve_triangular(chol, y * mask, lower=True)
    return 0.5 * white @ white + jnp.log(jnp.diag(chol)).sum() + 0.05 * theta @ theta


@jax.jit
def propose(theta, x, y, mask, key):
    def body(theta, _):
        g = jax.grad(nll)(theta, x, y, mask)
        return theta - 0.05 * g / (1e-6 + jnp.linalg.norm(g)), None

    theta, _ = jax.lax.scan(body, theta, None, length=60)
    grid = jax.random.uniform(key, (1024, DIM))
    chol = jnp.linalg.cholesky(covariance(theta, x, mask))
    cross = kernel(theta, x, grid) * mask[:, None]
    mean = cross.T @ jax.scipy.linalg.cho_solve((chol, True), y * mask)
    spread = jnp.exp(theta[DIM]) - jnp.sum(jax.scipy.linalg.solve_triangular(chol, cross, lower=True) ** 2, axis=0)
    return theta, grid[jnp.argmax(mean + 2.0 * jnp.sqrt(jnp.maximum(spread, 1e-9)))]


def objective(x):
    return float(np.exp(-np.sum((x - 0.6) ** 2) * 4) + 0.3 * np.cos(9 * x[0]) * x[1])


def main():
    rng = np.random.default_rng(0)
    xs = rng.random((FIRST, DIM)).astype(np.float32)
    ys = np.array([objective(x) for x in xs], np.float32)
    theta, lost = jnp.zeros(DIM + 2), 0.0
    for n in range(FIRST, FIRST + BUDGET):
        room = FIRST + BUDGET - n if FIXED else 0
        x, y, mask = np.pad(xs, ((0, room), (0, 0))), np.pad(ys - ys.mean(), (0, room)), np.pad(np.ones(n, np.float32), (0, room))
        programs, t0 = propose._cache_size(), time.perf_counter()
        theta, candidate = propose(theta, x, y, mask, jax.random.key(n))  # fault
        candidate = np.asarray(candidate)
        if n > FIRST and propose._cache_size() > programs:
            lost += time.perf_counter() - t0
        xs = np.concatenate([xs, candidate[None]])  # fault
        ys = np.append(ys, np.float32(objective(candidate)))
    print("best", ys.max(), "at", xs[ys.argmax()])
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))


main()
