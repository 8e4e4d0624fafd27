"""An ensemble of stochastic SIR epidemics: scan over days, vmap over scenarios, processed in equal chunks, summaries fetched per chunk. Structure: epidemiology notebooks (numpyro, covid models), rebuilt."""
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

START = time.perf_counter()
POPULATION, DAYS = 100_000.0, 300


def one_epidemic(beta, gamma, key):
    def day(state, key):
        s, i, r = state
        a, b = jax.random.split(key)
        risk = 1 - jnp.exp(-beta * i / POPULATION)
        new = jnp.clip(s * risk + jnp.sqrt(s * risk * (1 - risk)) * jax.random.normal(a), 0, s)
        leave = 1 - jnp.exp(-gamma)
        gone = jnp.clip(i * leave + jnp.sqrt(i * leave * (1 - leave)) * jax.random.normal(b), 0, i)
        return (s - new, i + new - gone, r + gone), i

    (_, _, total), curve = jax.lax.scan(day, (POPULATION - 50, 50.0, 0.0), jax.random.split(key, DAYS))
    return total, curve.max(), curve.argmax()


@jax.jit
def chunk(betas, gammas, keys):
    return jax.vmap(one_epidemic)(betas, gammas, keys)


def main():
    rng = np.random.default_rng(0)
    betas = rng.uniform(0.1, 0.6, (12, 4096)).astype(np.float32)
    gammas = rng.uniform(0.05, 0.3, (12, 4096)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), (12, 4096))
    pending = [chunk(b, g, k) for b, g, k in zip(betas, gammas, keys)]
    total, peak, when = (np.concatenate(part) for part in zip(*jax.device_get(pending)))
    grown = betas.ravel() > gammas.ravel()
    print(f"attack rate {total[grown].mean() / POPULATION:.3f}, peak {peak[grown].mean():.0f} on day {when[grown].mean():.0f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0}))


main()
