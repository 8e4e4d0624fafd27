"""A batch job of t-tests over many hypotheses; the p-value comes from SciPy through a pure_callback. "The maths is trivial, but a batch takes 100 ms and one Python core is at 100 %."

Truth: the callback is written for one hypothesis and vmapped with vmap_method="sequential", so the device stops and calls Python once per row: two thousand host callbacks a batch.
Advice: vmap_method="expand_dims" or "broadcast_all" (SciPy's stdtr takes whole arrays): one callback per batch; or jax.scipy.special.betainc on the device.
"""
import time
T0 = time.perf_counter()
import json
import sys
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

FIXED = "--fixed" in sys.argv
WORDS = (r"callback", r"sequential|each|every|per.?(row|element|call|batch|step)|times|calls|vmap|host|python|many")
ROWS, N, BATCHES = 1500, 1200, 40
calls = [0, 0.0]


def p_value(df, t):
    t0 = time.perf_counter()
    p = 2 * scipy.special.stdtr(np.asarray(df), -np.abs(np.asarray(t)))
    calls[0] += 1
    calls[1] += time.perf_counter() - t0
    return np.asarray(p, np.float32)


def t_test(a, b):
    va, vb = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
    t = (a.mean() - b.mean()) / jnp.sqrt(va + vb)
    df = (va + vb) ** 2 / (va ** 2 / (a.size - 1) + vb ** 2 / (b.size - 1))
    return jax.pure_callback(p_value, jax.ShapeDtypeStruct((), jnp.float32), df, t, vmap_method="expand_dims" if FIXED else "sequential")  # fault


@jax.jit
def run_batch(key, effect):
    a, b = jax.random.normal(key, (2, ROWS, N))
    p = jax.vmap(t_test)(a, b + effect[:, None])  # fault
    order = jnp.argsort(p)
    ok = p[order] <= 0.05 * jnp.arange(1, ROWS + 1) / ROWS          # Benjamini-Hochberg
    return ok.sum(), (p < 0.05).mean()


effect = jnp.where(jnp.arange(ROWS) % 10 == 0, 0.2, 0.0)
found = []
t = time.perf_counter()
for i in range(BATCHES):
    found.append(run_batch(jax.random.fold_in(jax.random.key(0), i), effect))  # fault
found = jax.device_get(found)
spent = time.perf_counter() - t
print("discoveries a batch", float(np.mean([f[0] for f in found])), "callbacks", calls[0])
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else spent * 0.6}))
