"""The open-channel flow simulation runs some hundred time steps and then never returns from one; one core stays busy, nothing is printed, Ctrl-C has no effect for a long time.

Truth: the square root of a negative head gives NaN; `err < TOL` is never true for NaN, and the lax.while_loop has no limit of iterations, so the compiled solver loops forever on the device.
Advice: bound the iterations in the loop's condition and stop on non-finite values; keep the argument of sqrt positive.
"""
import time
T0 = time.perf_counter()
import json
import os
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"hang|hung|stuck|never|no progress|stall|endless|infinite|not (return|finish)|wait", r"while|solve|advance|block|device|loop|comput|execut|nan")
CELLS, STEPS, TOL = 100_000, 700, 1e-5
last_progress = time.perf_counter()


def watchdog():
    time.sleep(40)
    now = time.perf_counter()
    print(json.dumps({"wall": round(now - T0, 3), "lost": round(now - last_progress, 3)}), flush=True)
    os._exit(0)


threading.Thread(target=watchdog, daemon=True).start()


def discharge(depth, slope):
    head = depth + 40.0 * slope
    if FIXED:
        head = jnp.maximum(head, 0.0)
    return 0.5 * depth * jnp.sqrt(head)  # fault


@jax.jit
def advance(depth, inflow):
    """One implicit step, solved by damped fixed-point iteration."""

    def residual_step(carry):
        guess, _, i = carry
        slope = (guess - jnp.roll(guess, -1)) / 2.0
        flow = discharge(guess, slope)
        new = depth + 0.02 * (jnp.roll(flow, 1) - flow + inflow)
        return 0.5 * (guess + new), jnp.sqrt(jnp.mean((new - guess) ** 2)), i + 1

    def unfinished(carry):
        _, err, i = carry
        if FIXED:
            return (err >= TOL) & (i < 40)
        return ~(err < TOL)  # fault

    depth, _, iterations = jax.lax.while_loop(unfinished, residual_step, (depth, jnp.float32(jnp.inf), 0))
    return depth, iterations


position = np.linspace(0, 1, CELLS, dtype=np.float32)
depth = jnp.asarray(1.0 + 0.02 * np.sin(2 * np.pi * position), jnp.float32)
for step in range(STEPS):
    flood = 0.0 if step < 350 else 0.02 * (step - 350)
    inflow = flood * np.exp(-((position - 0.5) ** 2) / 1e-8).astype(np.float32)
    depth, iterations = advance(depth, inflow)
    depth.block_until_ready()  # fault
    last_progress = time.perf_counter()
    if step % 50 == 49:
        print(f"step {step + 1}: {int(iterations)} iterations, deepest {float(depth.max()):.3f}", flush=True)
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}), flush=True)
os._exit(0)
