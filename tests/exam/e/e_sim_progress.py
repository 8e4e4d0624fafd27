"""Gray-Scott reaction-diffusion simulation, all time steps in one lax.scan. "A progress bar, how much can that cost?"

Truth: jax.debug.callback runs inside the scan body in each of the tens of thousands of tiny steps: one trip from XLA to Python per step, far more than the step itself costs.
Advice: call back only every N-th step (lax.cond), or nest the scan / chunk it in Python and report per chunk.
"""
import time
T0 = time.perf_counter()
import json
import sys
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"callback|call(s|ing)? back|host call|into python|debug", r"step|scan|loop|iteration|times|calls|each|every|often|second|per ")
N, STEPS = 32, 60_000


class Progress:
    def __init__(self, total):
        self.total, self.shown = total, -1

    def __call__(self, i, mass):
        pct = int(100 * int(i) / self.total)
        if pct // 10 != self.shown:
            self.shown = pct // 10
            print(f"{pct:3d} %  mass {float(mass):.4f}", flush=True)


progress = Progress(STEPS)


def laplacian(f):
    return (jnp.roll(f, 1, 0) + jnp.roll(f, -1, 0) + jnp.roll(f, 1, 1) + jnp.roll(f, -1, 1) - 4 * f)


def step(state, i):
    u, v = state
    uvv = u * v * v
    u = u + 0.16 * laplacian(u) - uvv + 0.035 * (1 - u)
    v = v + 0.08 * laplacian(v) + uvv - 0.095 * v
    if not FIXED:
        jax.debug.callback(progress, i, v.mean())  # fault
    return (u, v), None


@jax.jit
def simulate(state, first):
    n = STEPS // 10 if FIXED else STEPS
    return jax.lax.scan(step, state, first + jnp.arange(n))[0]


rng = np.random.default_rng(0)
u = np.ones((N, N), np.float32)
v = np.zeros((N, N), np.float32)
u[12:20, 12:20], v[12:20, 12:20] = 0.5, 0.25
state = (jnp.asarray(u + 0.02 * rng.random((N, N), np.float32)), jnp.asarray(v + 0.02 * rng.random((N, N), np.float32)))
if FIXED:
    for chunk in range(10):
        state = simulate(state, chunk * (STEPS // 10))
        progress(chunk * (STEPS // 10), state[1].mean())
else:
    state = simulate(state, 0)  # fault
    jax.block_until_ready(state)  # fault
    jax.effects_barrier()  # fault
print("final mass", float(state[1].mean()))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
