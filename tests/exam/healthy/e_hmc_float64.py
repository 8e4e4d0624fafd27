"""Hamiltonian Monte Carlo in float64 (on purpose): step-size search in warm-up, then scan-compiled chunks, R-hat after each chunk decides whether to go on. The same key is used twice deliberately, to compare two mass matrices with common random numbers."""
import time
T0 = time.perf_counter()
import json
from functools import partial
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np

CHAINS, DIM, CHUNK = 16, 10, 150


def logp(q, X, y):
    z = X @ q
    return jnp.sum(y * z - jnp.logaddexp(0.0, z)) - 0.5 * jnp.sum(q**2)


def hmc_step(q, key, eps, mass, X, y, leaps=16):
    grad = jax.grad(logp)
    k1, k2 = jax.random.split(key)
    p = jax.random.normal(k1, q.shape) * jnp.sqrt(mass)
    h0 = logp(q, X, y) - 0.5 * jnp.sum(p**2 / mass)

    def leap(c, _):
        q, p = c
        p = p + 0.5 * eps * grad(q, X, y)
        q = q + eps * p / mass
        return (q, p + 0.5 * eps * grad(q, X, y)), None

    (qn, p), _ = jax.lax.scan(leap, (q, p), None, length=leaps)
    ok = jnp.log(jax.random.uniform(k2)) < logp(qn, X, y) - 0.5 * jnp.sum(p**2 / mass) - h0
    return jnp.where(ok, qn, q), ok


@partial(jax.jit, static_argnames="n")
def run_chunk(q, key, eps, mass, X, y, n):
    def body(q, k):
        q, ok = jax.vmap(hmc_step, (0, 0, None, None, None, None))(q, jax.random.split(k, CHAINS), eps, mass, X, y)
        return q, (q, ok.mean())
    q, (trace, acc) = jax.lax.scan(body, q, jax.random.split(key, n))
    return q, trace, acc.mean()


def rhat(trace):
    w = trace.var(0, ddof=1).mean(0)
    b = trace.mean(0).var(0, ddof=1)
    return float(np.sqrt(1 + b / w).max())


rng = np.random.default_rng(0)
X = jnp.asarray(rng.normal(size=(400, DIM)) * np.linspace(0.5, 2, DIM))
y = jnp.asarray((rng.random(400) < 1 / (1 + np.exp(-np.asarray(X) @ rng.normal(size=DIM)))).astype(float))
key = jax.random.key(0)
q, eps, mass = jnp.zeros((CHAINS, DIM)), 0.2, jnp.ones(DIM)
for i in range(8):                                      # warm-up: its acceptance decides the next step size
    q, trace, acc = run_chunk(q, jax.random.fold_in(key, i), eps, mass, X, y, 40)
    eps *= 1.3 if float(acc) > 0.85 else 0.7
mass_b = 1.0 / jnp.var(trace.reshape(-1, DIM), axis=0)
pilot = jax.random.fold_in(key, 1000)                   # common random numbers for both
moves = {}
for name, m, e in (("unit", mass, eps), ("diag", mass_b, 0.25)):
    _, tr, _ = run_chunk(q, pilot, e, m, X, y, 40)
    moves[name] = (float(jnp.mean((tr[1:] - tr[:-1]) ** 2)), m, e)
best = max(moves, key=lambda n: moves[n][0])
_, mass, eps = moves[best]
chunks = []
for i in range(12):
    q, trace, acc = run_chunk(q, jax.random.fold_in(key, 2000 + i), eps, mass, X, y, CHUNK)
    chunks.append(np.asarray(trace))
    r = rhat(np.concatenate(chunks))
    print(f"chunk {i} mass {best} acceptance {float(acc):.2f} R-hat {r:.4f}", flush=True)
    if r < 1.0005 and i >= 8:
        break
print(json.dumps({"wall": time.perf_counter() - T0}))
