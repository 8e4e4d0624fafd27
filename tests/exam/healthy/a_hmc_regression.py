"""Bayesian logistic regression with Hamiltonian Monte Carlo: four chains under vmap, warm-up and sampling in lax.scan, convergence diagnostics in numpy.

Structure from the BlackJAX and TFP-on-JAX tutorials (kernel, inference loop, several chains).
"""
import time
T0 = time.perf_counter()
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np

ROWS, DIM, CHAINS, WARMUP, DRAWS, LEAPS = 1500, 20, 4, 400, 800, 12


def log_posterior(beta, x, y):
    logits = x @ beta
    return jnp.sum(y * logits - jnp.logaddexp(0.0, logits)) - 0.5 * jnp.sum(beta**2)


def hmc_step(beta, key, size, density):
    k1, k2 = jax.random.split(key)
    momentum = jax.random.normal(k1, beta.shape)
    gradient = jax.grad(density)

    def leap(carry, _):
        q, p = carry
        p = p + 0.5 * size * gradient(q)
        q = q + size * p
        return (q, p + 0.5 * size * gradient(q)), None

    (q, p), _ = jax.lax.scan(leap, (beta, momentum), None, LEAPS)
    change = density(q) - density(beta) + 0.5 * (momentum @ momentum - p @ p)
    probability = jnp.minimum(1.0, jnp.exp(change))
    return jnp.where(jax.random.uniform(k2) < probability, q, beta), probability


@functools.partial(jax.jit, static_argnames="draws")
def sample(beta, size, key, x, y, draws):
    density = functools.partial(log_posterior, x=x, y=y)

    def chain(beta, size, key):
        def one(carry, inputs):
            beta, log_size = carry
            key, rate = inputs
            beta, probability = hmc_step(beta, key, jnp.exp(log_size), density)
            return (beta, log_size + rate * (probability - 0.8)), (beta, probability)

        rates = jnp.where(size[1] > 0, 0.1 / jnp.sqrt(1.0 + jnp.arange(draws)), 0.0)
        return jax.lax.scan(one, (beta, size[0]), (jax.random.split(key, draws), rates))

    return jax.vmap(chain)(beta, size, jax.random.split(key, CHAINS))


rng = np.random.default_rng(0)
x = rng.standard_normal((ROWS, DIM)).astype(np.float32)
truth = rng.standard_normal(DIM) * 0.7
y = (rng.random(ROWS) < 1 / (1 + np.exp(-x @ truth))).astype(np.float32)
keys = jax.random.split(jax.random.key(0), 3)
beta = 0.1 * jax.random.normal(keys[0], (CHAINS, DIM))
size = jnp.stack([jnp.full(CHAINS, jnp.log(0.02)), jnp.ones(CHAINS)], axis=1)
(beta, log_size), _ = sample(beta, size, keys[1], x, y, WARMUP)
size = jnp.stack([log_size, jnp.zeros(CHAINS)], axis=1)
_, (draws, accepted) = sample(beta, size, keys[2], x, y, DRAWS)
draws = np.asarray(draws)
within = draws.var(axis=1, ddof=1).mean(axis=0)
between = draws.mean(axis=1).var(axis=0, ddof=1)
rhat = np.sqrt((within * (DRAWS - 1) / DRAWS + between) / within)
print(f"accepted {float(accepted.mean()):.2f}, worst r-hat {rhat.max():.3f}, error {np.abs(draws.mean(axis=(0, 1)) - truth).mean():.3f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}))
