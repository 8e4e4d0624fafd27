"""We added a progress bar to the Langevin simulation; since then the same 20,000 steps take ten times as long. The physics did not change.

Truth: the scan's body calls back into Python (jax.debug.callback) in every one of its cheap steps, and the round trips to the host cost far more than the simulation.
Advice: call back rarely, e.g. every thousandth step (lax.cond around the callback, or an outer Python loop over chunks of the scan).
"""
import json
import sys
import time

import jax
import jax.numpy as jnp

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"callback|host call|call(s|ing)? back|python|progress",)
STEPS, WALKERS = 20_000, 512


class Progress:
    def __init__(self, total):
        self.total, self.shown = total, -1

    def __call__(self, i):
        percent = 100 * int(i) // self.total
        if percent >= self.shown + 10:
            self.shown = percent
            print(f"{percent:3d} %", flush=True)


def force(x):
    return 4 * x * (1 - x**2) + 0.3 * jnp.sin(5 * x)


def simulate(key, progress):
    def body(carry, i):
        x, key = carry
        key, sub = jax.random.split(key)
        if FIXED:
            jax.lax.cond(i % 1000 == 0, lambda: jax.debug.callback(progress, i), lambda: None)
        else:
            jax.debug.callback(progress, i)  # fault
        x = x + 2e-3 * force(x) + 0.06 * jax.random.normal(sub, x.shape)
        return (x, key), jnp.mean(x > 0)

    (x, _), right = jax.lax.scan(body, (jnp.full(WALKERS, -1.0), key), jnp.arange(STEPS))
    return x, right


def main():
    run = jax.jit(lambda key: simulate(key, Progress(STEPS))).lower(jax.random.key(0)).compile()
    t0 = time.perf_counter()
    x, right = run(jax.random.key(1))  # fault
    right = float(right[-1])
    lost = 0.0 if FIXED else time.perf_counter() - t0
    print(f"{right:.3f} of the walkers crossed")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))


main()
