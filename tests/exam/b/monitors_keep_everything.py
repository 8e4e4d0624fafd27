"""A spiking network is simulated in chunks. The memory of the process grows by the minute until the kernel kills it; the model's
own state is a few megabytes and constant.

Truth: the monitor list keeps each chunk's full potential and spike history on the device for a plot that only needs the mean rate.
Advice: reduce inside the jitted chunk and keep only the numbers needed (or move every nth sample to the host / to disk).

Source: brainpy/BrainPy#611 (cf. jax-ml/jax#1491).
"""
import json
import resource
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"memory|live (array|buffer)|bytes|leak|MB|GB|grow", r"grow|leak|keep|held|hold|list|append|reference|retain|accumul|alive|live")
NEURONS, CHUNK, CHUNKS, DT = 4000, 50, 280, 0.5

key = jax.random.key(0)
k_pre, k_weight, k_sign = jax.random.split(key, 3)
FAN_IN = 40
pre = jax.random.randint(k_pre, (NEURONS, FAN_IN), 0, NEURONS)
weight = 0.6 * jax.random.uniform(k_weight, (NEURONS, FAN_IN)) * jnp.where(jax.random.uniform(k_sign, (NEURONS, FAN_IN)) < 0.8, 1.0, -4.5)


@jax.jit
def simulate(state, key):
    """Leaky integrate-and-fire with exponential synapses."""

    def tick(carry, k):
        potential, current, spikes = carry
        drive = 11.0 + 3.0 * jax.random.normal(k, (NEURONS,))
        current = current * 0.9 + (weight * spikes[pre]).sum(axis=1)
        potential = potential + DT / 10.0 * (-potential + drive + current)
        spikes = (potential > 10.0).astype(jnp.float32)
        potential = jnp.where(spikes > 0, 0.0, potential)
        return (potential, current, spikes), (potential, spikes)

    state, (potentials, spikes) = jax.lax.scan(tick, state, jax.random.split(key, CHUNK))
    return state, {"potential": potentials, "spike": spikes, "rate": spikes.mean() / (DT * 1e-3)}


state = (10.0 * jax.random.uniform(key, (NEURONS,)), jnp.zeros(NEURONS), jnp.zeros(NEURONS))
monitors = []
for chunk in range(CHUNKS):
    key, sub = jax.random.split(key)
    state, record = simulate(state, sub)
    if FIXED:
        monitors.append({"rate": float(record["rate"])})
    else:
        monitors.append(record)  # fault
    if chunk % 50 == 0:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        held = sum(a.nbytes for a in jax.live_arrays()) / 2**20
        print(f"chunk {chunk}: rate {float(record['rate']):.1f} Hz, arrays alive {held:.0f} MB, peak memory {peak:.0f} MB")
rates = np.array([float(m["rate"]) for m in monitors])
print("mean rate", rates.mean().round(2), "Hz")
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": None if not FIXED else 0.0}))
