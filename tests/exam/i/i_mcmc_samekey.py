"""Metropolis sampling of a Bayesian logistic regression, in blocks. "R-hat looks odd and my intervals change with the block length."

Truth: the key is split once before the loop; every block of iterations is run with the same key, so every block uses the same proposals and the same accept draws.
Advice: split the key within the loop (key, sub = jax.random.split(key)) or fold_in the block number.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"\bkeys?\b|prng|random", r"same|reus|again|identical|never|not split|repeat|constant|fold_in|fresh")
N, D, CHAINS, BLOCK = 2000, 12, 16, 50


def log_post(theta, x, y):
    logits = x @ theta
    return jnp.sum(y * logits - jax.nn.softplus(logits)) - 0.5 * jnp.sum(theta ** 2) / 4.0


@jax.jit
def run_block(key, theta, x, y):
    """BLOCK Metropolis iterations of all chains; returns the draws."""
    density = jax.vmap(log_post, (0, None, None))

    def one(carry, k):
        theta, lp = carry
        k_prop, k_acc = jax.random.split(k)
        prop = theta + 0.035 * jax.random.normal(k_prop, theta.shape)
        lp_prop = density(prop, x, y)
        take = jnp.log(jax.random.uniform(k_acc, lp.shape)) < lp_prop - lp
        theta = jnp.where(take[:, None], prop, theta)
        return (theta, jnp.where(take, lp_prop, lp)), (theta, take)

    (theta, _), (draws, took) = jax.lax.scan(one, (theta, density(theta, x, y)), jax.random.split(key, BLOCK))
    return theta, draws[-1], took.mean()


def sample(key, x, y, blocks):
    key, k_init = jax.random.split(key)
    theta = 0.1 * jax.random.normal(k_init, (CHAINS, D))
    key, sub = jax.random.split(key)
    kept, rates = [], []
    for i in range(blocks):
        if FIXED:
            key, sub = jax.random.split(key)
        theta, last, rate = run_block(sub, theta, x, y)  # fault
        kept.append(last)
        rates.append(rate)
    return np.stack(jax.device_get(kept)), np.mean(jax.device_get(rates))


rng = np.random.default_rng(1)
x = rng.standard_normal((N, D)).astype(np.float32)
true = rng.standard_normal(D).astype(np.float32)
y = (rng.random(N) < 1 / (1 + np.exp(-x @ true))).astype(np.float32)
x, y = jnp.asarray(x), jnp.asarray(y)
draws, rate = sample(jax.random.key(7), x, y, blocks=120)  # fault
half = draws[len(draws) // 3:]
within, between = half.var(0).mean(), half.mean(0).var(0).mean()
print("acceptance %.2f  sd %.4f  between/within %.3f" % (rate, half.std(), between / within))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
