"""Eight chains were asked for, `top` shows a single busy core, and the posterior takes eight times as long as the
one-chain test run did. The sampler's documentation promised parallel chains.

Truth: with one device the "parallel" chains are drawn one after another; the small model never fills the machine.
Advice: run the chains side by side in one program (`jax.vmap` over the chains, chain_method="vectorized"), or give JAX as many host devices as chains.

Source: maxisi/ringdown#163 (see also pysersic/pysersic#60).
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"chain|sequential|one after another|loop|serial|device", r"vmap|vectori[sz]|parallel|device|batch|side by side|idle|core")
CHAINS, WARMUP, DRAWS, LEAPFROG = 8, 500, 9000, 16

rng = np.random.default_rng(0)
true_beta = rng.normal(size=6)
features = jnp.asarray(rng.normal(size=(120, 6)), jnp.float32)
labels = jnp.asarray(rng.uniform(size=120) < 1 / (1 + np.exp(-np.asarray(features) @ true_beta)), jnp.float32)


def log_posterior(beta):
    logits = features @ beta
    return jnp.sum(labels * logits - jax.nn.softplus(logits)) - 0.5 * jnp.sum(beta**2) / 9.0


def hmc_step(state, key):
    beta, step_size = state
    key_p, key_u = jax.random.split(key)
    momentum = jax.random.normal(key_p, beta.shape)
    grad = jax.grad(log_posterior)

    def leap(_, qp):
        q, p = qp
        p = p + 0.5 * step_size * grad(q)
        q = q + step_size * p
        return q, p + 0.5 * step_size * grad(q)

    q, p = jax.lax.fori_loop(0, LEAPFROG, leap, (beta, momentum))
    log_ratio = log_posterior(q) - 0.5 * p @ p - log_posterior(beta) + 0.5 * momentum @ momentum
    accept = jnp.log(jax.random.uniform(key_u)) < log_ratio
    step_size = step_size * jnp.where(accept, 1.002, 0.995)
    return (jnp.where(accept, q, beta), step_size), jnp.where(accept, q, beta)


def run_chain(key, start):
    _, draws = jax.lax.scan(hmc_step, (start, jnp.float32(0.1)), jax.random.split(key, WARMUP + DRAWS))
    return draws[WARMUP:]


keys = jax.random.split(jax.random.key(1), CHAINS)
starts = jax.random.normal(jax.random.key(2), (CHAINS, 6))
lost = 0.0
if FIXED:
    draws = jax.jit(jax.vmap(run_chain))(keys, starts).block_until_ready()
else:
    sampler = jax.jit(run_chain)
    collected, seconds = [], []
    for c in range(CHAINS):
        t = time.perf_counter()
        collected.append(sampler(keys[c], starts[c]).block_until_ready())  # fault
        seconds.append(time.perf_counter() - t)
    draws = jnp.stack(collected)
    lost = sum(seconds[1:])  # all of these could have run beside the first

within = draws.var(axis=1).mean(axis=0)
between = DRAWS * draws.mean(axis=1).var(axis=0, ddof=1)
r_hat = jnp.sqrt((DRAWS - 1) / DRAWS + between / within / DRAWS)
print("r_hat", np.round(np.asarray(r_hat), 3))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))
