"""Fitting orbits to a catalogue worked for the test catalogue. On the full one the program computes for ever: one core
at 100 %, nothing printed after "block 3".

Truth: one star has a NaN in it (a missing measurement); in the batched `while_loop` its residual is never below the tolerance, so the loop never ends for the whole block.
Advice: test `residual > tol` rather than "not converged" so that NaN ends it, bound the iterations, and drop or mask rows that are not finite before the solver.

Source: Joshuaalbert/jaxns#65 (similar: pyro-ppl/numpyro#582).
"""
import json
import os
import sys
import threading
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"hang|stuck|never|no end|for ever|forever|not return|still running|no progress|stall|wait|endless|infinite|long", r"while|loop|nan|converg|device|comput|execut|program|call")
LAST = [time.perf_counter()]


def watchdog():
    time.sleep(40 - (time.perf_counter() - START))
    now = time.perf_counter()
    print(json.dumps({"wall": round(now - START, 2), "lost": round(now - LAST[0], 2)}), flush=True)
    os._exit(0)


threading.Thread(target=watchdog, daemon=True).start()


@jax.jit
def eccentric_anomaly(mean_anomaly, eccentricity):
    """Kepler's equation by damped Newton steps, all rows of the block together."""

    def unfinished(carry):
        iteration, _, residual = carry
        if FIXED:
            return (residual > 1e-5).any() & (iteration < 200)
        return ~(residual < 1e-5).all()  # fault

    def newton(carry):
        iteration, anomaly, _ = carry
        value = anomaly - eccentricity * jnp.sin(anomaly) - mean_anomaly
        anomaly = anomaly - 0.7 * value / (1 - eccentricity * jnp.cos(anomaly))
        return iteration + 1, anomaly, jnp.abs(value)

    begin = (jnp.int32(0), mean_anomaly, jnp.full_like(mean_anomaly, jnp.inf))
    iterations, anomaly, _ = jax.lax.while_loop(unfinished, newton, begin)  # fault
    return anomaly, iterations


@jax.jit
def positions(anomaly, eccentricity, axis):
    x = axis * (jnp.cos(anomaly) - eccentricity)
    y = axis * jnp.sqrt(1 - eccentricity**2) * jnp.sin(anomaly)
    return jnp.stack([x, y], axis=-1)


rng = np.random.default_rng(7)
BLOCK, BLOCKS = 200_000, 10
spread = []
for block in range(BLOCKS):
    mean_anomaly = rng.uniform(-np.pi, np.pi, BLOCK).astype(np.float32)
    eccentricity = rng.beta(1, 3, BLOCK).astype(np.float32) * 0.8
    axis = rng.lognormal(0, 0.3, BLOCK).astype(np.float32)
    if block == 4:
        eccentricity[12345] = np.nan  # not measured
    anomaly, iterations = eccentric_anomaly(mean_anomaly, eccentricity)
    where = positions(anomaly, eccentricity, axis)
    spread.append(np.nanstd(np.asarray(where)))
    LAST[0] = time.perf_counter()
    print(f"block {block}: {int(iterations)} iterations, spread {spread[-1]:.3f}", flush=True)
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
