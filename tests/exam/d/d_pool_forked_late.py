"""Parameter sweep of an oscillator with a process pool. "With the pool it hangs; the loop without it works."

Truth: the pool forks the process after JAX has started its threads; the children inherit its runtime without the threads and hang in their first computation.
Advice: no fork after JAX was used: start method "spawn" or "forkserver", or threads, or vmap.
"""
import time
T0 = time.perf_counter()
import json
import multiprocessing as mp
import os
import sys
import threading
import warnings
from multiprocessing.pool import ThreadPool

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"fork|multiprocess|child|process|pool", r"hang|dead|stuck|block|wait|spawn|stall|no progress")
warnings.filterwarnings("ignore", message=".*fork.*")
began = [T0]


def watchdog():
    time.sleep(40 - (time.perf_counter() - T0))
    now = time.perf_counter()
    for child in mp.active_children():
        child.kill()
    print(json.dumps({"wall": now - T0, "lost": now - began[0]}), flush=True)
    os._exit(3)


@jax.jit
def simulate(damping):
    def step(state, t):
        x, v = state
        force = -x - x**3 - damping * v + 0.3 * jnp.cos(1.2 * t)
        v = v + 1e-3 * force
        return (x + 1e-3 * v, v), None
    start = jnp.linspace(-1, 1, 512)
    (x, v), _ = jax.lax.scan(step, (start, jnp.zeros_like(start)), jnp.arange(60_000) * 1e-3)
    return jnp.mean(x * x + v * v)


def energy(damping):
    return float(simulate(damping))


def main():
    threading.Thread(target=watchdog, daemon=True).start()
    print("undamped:", energy(0.0))
    sweep = np.linspace(0.01, 0.5, 24).astype(np.float32)
    began[0] = time.perf_counter()
    pool = ThreadPool(2) if FIXED else mp.get_context("fork").Pool(2)  # fault
    with pool:
        energies = pool.map(energy, sweep)  # fault
    print("damped:", energies[0], "...", energies[-1])
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0}))


main()
