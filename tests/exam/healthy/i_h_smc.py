"""Adaptive sequential Monte Carlo for a mixture posterior: the next temperature is found by bisection under jit and read once per stage, because the number of stages depends on the data."""
import time
T0 = time.perf_counter()
import json

import jax
import jax.numpy as jnp
import numpy as np

PARTICLES, DIM, MOVES = 4096, 6, 40


def log_prior(x):
    return -0.5 * jnp.sum(x ** 2, -1) / 9


def log_like(x, data):
    a = -0.5 * jnp.sum((data[:, None] - x) ** 2, -1)
    b = -0.5 * jnp.sum((data[:, None] + x) ** 2, -1)
    return jnp.sum(jnp.logaddexp(a, b), 0)


@jax.jit
def next_temperature(ll, beta):
    def ess(b):
        w = jax.nn.softmax((b - beta) * ll)
        return 1 / jnp.sum(w ** 2)

    def halve(c, _):
        lo, hi = c
        mid = (lo + hi) / 2
        return jax.tree.map(lambda a, b: jnp.where(ess(mid) > 0.8 * PARTICLES, a, b), (mid, hi), (lo, mid)), None

    (lo, _), _ = jax.lax.scan(halve, (beta, jnp.float32(1)), None, length=30)
    return jnp.where(ess(1.0) > 0.8 * PARTICLES, 1.0, jnp.maximum(lo, beta + 1e-6))


@jax.jit
def stage(key, x, ll, beta, new, data):
    k_res, k_move = jax.random.split(key)
    w = (new - beta) * ll
    evidence = jax.nn.logsumexp(w) - jnp.log(PARTICLES)
    x = x[jax.random.categorical(k_res, w, shape=(PARTICLES,))]
    scale = 0.6 * x.std(0)
    target = lambda x: log_prior(x) + new * log_like(x, data)

    def move(c, k):
        x, lp = c
        k1, k2 = jax.random.split(k)
        y = x + scale * jax.random.normal(k1, x.shape)
        lq = target(y)
        ok = jnp.log(jax.random.uniform(k2, lp.shape)) < lq - lp
        return (jnp.where(ok[:, None], y, x), jnp.where(ok, lq, lp)), ok.mean()

    (x, _), rate = jax.lax.scan(move, (x, target(x)), jax.random.split(k_move, MOVES))
    return x, log_like(x, data), evidence, rate.mean()


rng = np.random.default_rng(0)
data = jnp.asarray(rng.choice([-1, 1], (24, 1)) * np.ones(DIM) * 0.5 + 0.9 * rng.standard_normal((24, DIM)), jnp.float32)
key, k = jax.random.split(jax.random.key(0))
x = 3 * jax.random.normal(k, (PARTICLES, DIM))
ll, beta, evidence, stages = jax.jit(log_like)(x, data), jnp.float32(0), [], 0
while float(beta) < 1.0:
    key, k = jax.random.split(key)
    new = next_temperature(ll, beta)
    x, ll, z, rate = stage(k, x, ll, beta, new, data)
    evidence.append(z)
    beta, stages = new, stages + 1
print(stages, "stages, log evidence %.2f, acceptance %.2f" % (sum(jax.device_get(evidence)), float(rate)))
print(json.dumps({"wall": time.perf_counter() - T0}))
