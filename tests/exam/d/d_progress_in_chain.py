"""Metropolis sampler with a progress display. "Since the progress bar is in, sampling takes several times as long."

Truth: an ordered io_callback runs in each of the steps of the scan: the chain goes back to Python tens of thousands of times, and that costs more than the sampling.
Advice: call back once per thousand steps (lax.cond, or an outer loop over chunks), or show progress between chunks from the host.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

FIXED = "--fixed" in sys.argv
WORDS = (r"callback|host|python", r"each (step|iteration)|every|per (step|iteration)|calls|times|rarely|less often|chunk|times per")
STEPS, CHUNKS = 5_000, 5
seen = {"step": 0, "accepted": 0.0}


def show(step, accepted):
    seen["step"], seen["accepted"] = int(step), float(accepted)
    if seen["step"] % 5000 == 0:
        print(f"step {seen['step']:6d} accepted {seen['accepted']:.2f}")


def log_density(x):
    return -0.5 * jnp.sum((x[1:] - x[:-1] ** 2) ** 2) * 4 - 0.5 * jnp.sum((x - 1) ** 2)


def metropolis(state, inputs, display):
    x, logp, accepted = state
    key, n = inputs
    noise, coin = jax.random.split(key)
    proposal = x + 0.15 * jax.random.normal(noise, x.shape)
    new = log_density(proposal)
    take = jnp.log(jax.random.uniform(coin)) < new - logp
    x, logp = jnp.where(take, proposal, x), jnp.where(take, new, logp)
    accepted = accepted + take
    if display == "each":
        io_callback(show, None, n, accepted / n, ordered=True)  # fault
    elif display == "rarely":
        jax.lax.cond(n % 1000 == 0, lambda: io_callback(show, None, n, accepted / n, ordered=True), lambda: None)
    return (x, logp, accepted), x[0]


def run(state, key, first, display):
    keys = jax.random.split(key, STEPS)
    return jax.lax.scan(lambda s, i: metropolis(s, i, display), state, (keys, first + 1 + jnp.arange(STEPS)))


run = jax.jit(run, static_argnums=3)


def main():
    start = jnp.zeros(40)
    display = "rarely" if FIXED else "each"
    clocks = {}
    for kind in (display,) if FIXED else (display, "none"):  # the last chunk without display is the measure
        state, trace = (start, log_density(start), jnp.float32(0)), []
        run.lower(state, jax.random.key(0), 0, kind).compile()
        clocks[kind] = []
        for chunk in range(CHUNKS if kind == display else 1):
            t = time.perf_counter()
            state, xs = run(state, jax.random.key(chunk), chunk * STEPS, kind)  # fault
            trace.append(np.asarray(xs))
            clocks[kind].append(time.perf_counter() - t)
    lost = 0.0 if FIXED else sum(clocks["each"]) - CHUNKS * clocks["none"][0]
    print("mean of the first coordinate", float(np.mean(trace[-1])))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))


main()
