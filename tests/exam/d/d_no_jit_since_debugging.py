"""Fit of a pendulum to measurements. "Since Tuesday the fit is fifty times slower; on the colleague's machine it is fast."

Truth: jax_disable_jit is still on from a debugging session: all functions run operation by operation, jit is ignored.
Advice: remove the switch (config.update / JAX_DISABLE_JIT), use jax.disable_jit() only as a context manager around what is debugged.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"disable.?jit|jit (is|was|are) (off|disabled)|disabled?|without jit|not compiled|eager|op.by.op|operation by operation",)
if not FIXED:
    jax.config.update("jax_disable_jit", True)  # fault


@jax.jit
def swing(params, times):
    def rk4(state, dt):
        f = lambda s: jnp.stack([s[1], -params["g"] * jnp.sin(s[0]) - params["drag"] * s[1]])
        k1 = f(state)
        k2 = f(state + dt / 2 * k1)
        k3 = f(state + dt / 2 * k2)
        k4 = f(state + dt * k3)
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return state, state[0]
    return jax.lax.scan(rk4, jnp.array([1.2, 0.0]), jnp.diff(times, prepend=0.0))[1]


@jax.jit
def fit_step(params, times, angles):
    loss, slope = jax.value_and_grad(lambda p: jnp.mean((swing(p, times) - angles) ** 2))(params)  # fault
    return {k: v - {"g": 2.0, "drag": 0.1}[k] * slope[k] for k, v in params.items()}, loss


def main():
    times = np.linspace(0.05, 1.0, 20, dtype=np.float32)
    truth = {"g": jnp.float32(9.81), "drag": jnp.float32(0.3)}
    angles = np.asarray(swing(truth, times)) + np.random.default_rng(0).normal(size=20).astype(np.float32) * 0.01
    params, clocks = {"g": jnp.float32(8.0), "drag": jnp.float32(0.1)}, []
    for i in range(6):
        t = time.perf_counter()
        params, loss = fit_step(params, times, angles)  # fault
        jax.block_until_ready(loss)
        clocks.append(time.perf_counter() - t)
    print("loss", float(loss), "g", float(params["g"]))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0 if FIXED else sum(clocks)}))


main()
