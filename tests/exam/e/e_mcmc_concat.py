"""Metropolis sampler for a Bayesian logistic regression, 32 chains. "It gets slower the longer the chain is, and the CPU is busy with something that isn't my density."

Truth: the trace is kept by jnp.concatenate onto an array that grows by one row in each sweep: a new shape each time, hence a new XLA compilation each time (and a copy of everything so far).
Advice: preallocate the trace and write with .at[i].set (donated, jitted), or collect with lax.scan, or append to a host list.
"""
import time
T0 = time.perf_counter()
import json
import sys
from functools import partial
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac(e|ing)", r"shape|grow|concat|size|length")
CHAINS, DIM, SWEEPS = 32, 20, 300


def logp(w, X, y):
    z = X @ w
    return jnp.sum(y * z - jnp.logaddexp(0.0, z)) - 0.5 * jnp.sum(w**2)


@jax.jit
def sweep(w, lp, key, X, y):
    """20 Metropolis steps for each chain."""
    def one(carry, k):
        w, lp = carry
        k1, k2 = jax.random.split(k)
        prop = w + 0.06 * jax.random.normal(k1, w.shape)
        lpn = jax.vmap(logp, (0, None, None))(prop, X, y)
        ok = jnp.log(jax.random.uniform(k2, lp.shape)) < lpn - lp
        return (jnp.where(ok[:, None], prop, w), jnp.where(ok, lpn, lp)), ok.mean()
    (w, lp), acc = jax.lax.scan(one, (w, lp), jax.random.split(key, 20))
    return w, lp, acc.mean()


@partial(jax.jit, donate_argnums=0)
def write(trace, i, w):
    return trace.at[i].set(w)


rng = np.random.default_rng(0)
X = jnp.asarray(rng.normal(size=(500, DIM)), jnp.float32)
true_w = rng.normal(size=DIM)
y = jnp.asarray(rng.random(500) < 1 / (1 + np.exp(-np.asarray(X) @ true_w)), jnp.float32)
w = jnp.zeros((CHAINS, DIM))
lp = jax.jit(jax.vmap(logp, (0, None, None)))(w, X, y)
keys = list(jax.random.split(jax.random.key(0), SWEEPS))
trace = jnp.zeros((SWEEPS, CHAINS, DIM)) if FIXED else jnp.zeros((0, CHAINS, DIM))
lost = 0.0
for i in range(SWEEPS):
    w, lp, acc = sweep(w, lp, keys[i], X, y)
    if FIXED:
        trace = write(trace, i, w)
    else:
        t = time.perf_counter()
        trace = jnp.concatenate([trace, w[None]])  # fault
        lost += time.perf_counter() - t
post = np.asarray(trace)[SWEEPS // 3:]
print("acceptance", float(acc), "error of the mean", float(np.abs(post.mean((0, 1)) - true_w).mean()))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))
