"""Bayesian regression with HMC: sixteen chains at once, step size adapted in a warm-up.

Structure: blackjax-devs howto_sample_multiple_chains (one scan over a vmapped kernel), then R-hat.
"""
import json
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np

CHAINS, WARMUP, DRAWS, LEAPS = 16, 300, 2500, 12
rng = np.random.default_rng(0)
design = jnp.asarray(rng.normal(size=(150, 5)), jnp.float32)
outcome = jnp.asarray(np.asarray(design) @ np.array([1.0, -2.0, 0.5, 0.0, 3.0]) + rng.standard_t(4, 150), jnp.float32)


def logdensity(theta):
    beta, log_sigma = theta[:5], theta[5]
    z = (outcome - design @ beta) / jnp.exp(log_sigma)
    return jnp.sum(-2.5 * jnp.log1p(z**2 / 4) - log_sigma) - 0.5 * jnp.sum(theta**2) / 25


def kernel(key, theta, step):
    k1, k2 = jax.random.split(key)
    p0 = jax.random.normal(k1, theta.shape)
    grad = jax.grad(logdensity)

    def leap(_, qp):
        q, p = qp
        p = p + 0.5 * step * grad(q)
        q = q + step * p
        return q, p + 0.5 * step * grad(q)

    q, p = jax.lax.fori_loop(0, LEAPS, leap, (theta, p0))
    log_accept = jnp.minimum(0.0, logdensity(q) - logdensity(theta) + 0.5 * (p0 @ p0 - p @ p))
    take = jnp.log(jax.random.uniform(k2)) < log_accept
    return jnp.where(take, q, theta), jnp.exp(log_accept)


@jax.jit
def warm_up(key, thetas):
    def body(carry, k):
        thetas, log_step = carry
        thetas, accept = jax.vmap(kernel, (0, 0, None))(jax.random.split(k, CHAINS), thetas, jnp.exp(log_step))
        return (thetas, log_step + 0.05 * (accept.mean() - 0.8)), None

    return jax.lax.scan(body, (thetas, jnp.log(0.02)), jax.random.split(key, WARMUP))[0]


@jax.jit
def sample(key, thetas, log_step):
    def body(thetas, k):
        thetas, _ = jax.vmap(kernel, (0, 0, None))(jax.random.split(k, CHAINS), thetas, jnp.exp(log_step))
        return thetas, thetas

    return jax.lax.scan(body, thetas, jax.random.split(key, DRAWS))[1]


k_init, k_warm, k_draw = jax.random.split(jax.random.key(0), 3)
thetas, log_step = warm_up(k_warm, 0.5 * jax.random.normal(k_init, (CHAINS, 6)))
draws = np.asarray(sample(k_draw, thetas, log_step))
within, between = draws.var(0).mean(0), draws.mean(0).var(0, ddof=1)
print("step", round(float(jnp.exp(log_step)), 4), "R-hat", np.round(np.sqrt(1 + between / within), 3), "mean", draws.mean((0, 1)).round(2))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
