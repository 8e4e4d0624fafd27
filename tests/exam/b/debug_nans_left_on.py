"""Since we hunted a NaN two weeks ago the closed-loop evaluation is slow. The NaN is fixed, the controller is the same
as before, nobody remembers what else was changed; an episode takes many times as long.

Truth: `jax_debug_nans` is still switched on: each call leaves JAX's fast path, waits, and has every output tested on the host.
Advice: turn the flag off (or keep it for a debugging run behind an option); test one scalar at the end of an episode instead.

Source: jax-ml/jax#13789.
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp

FIXED = "--fixed" in sys.argv
WORDS = (r"debug.?nans?|nan.?check|nan.?debug|check.{0,20}nan", r"flag|turn|switch|disable|off|slow|remove|overhead|on\b|config")
if not FIXED:
    jax.config.update("jax_debug_nans", True)  # fault
EPISODES, HORIZON, DT = 12, 700, 0.02


@jax.jit
def controller(params, obs, memory):
    hidden = jnp.tanh(params["in"] @ obs + params["rec"] @ memory)
    return {"torque": params["out"] @ hidden, "value": params["critic"] @ hidden}, 0.9 * memory + 0.1 * hidden


@jax.jit
def simulate(body, torque):
    """Two coupled pendulums with friction."""
    angle, speed = body["angle"], body["speed"]
    pull = -9.81 * jnp.sin(angle) - 0.6 * (angle - angle[::-1])
    speed = speed + DT * (pull - 0.05 * speed + jnp.clip(torque, -3, 3))
    angle = angle + DT * speed
    energy = 0.5 * jnp.sum(speed**2) + 9.81 * jnp.sum(1 - jnp.cos(angle))
    return {"angle": angle, "speed": speed, "energy": energy}


@jax.jit
def observe(body, noise):
    return jnp.concatenate([jnp.sin(body["angle"]), jnp.cos(body["angle"]), body["speed"]]) + noise


keys = jax.random.split(jax.random.key(0), 4)
shapes = {"in": (32, 6), "rec": (32, 32), "out": (2, 32), "critic": (1, 32)}
params = {n: 0.2 * jax.random.normal(k, s) for k, (n, s) in zip(keys, shapes.items())}
noise = 0.01 * jax.random.normal(jax.random.key(1), (6,))


def episode(number, steps):
    body = {"angle": jnp.array([0.5, -0.3]) * (1 + 0.1 * number), "speed": jnp.zeros(2), "energy": jnp.zeros(())}
    memory = jnp.zeros(32)
    for _ in range(steps):
        action, memory = controller(params, observe(body, noise), memory)
        body = simulate(body, action["torque"])
    return float(body["energy"])


episode(0, 3)
t = time.perf_counter()
for number in range(EPISODES):
    energy = episode(number, HORIZON)
    print(f"episode {number}: final energy {energy:.3f}")
loop = time.perf_counter() - t

lost = 0.0
if not FIXED:  # own clock: what does an episode cost without the flag?
    with jax.debug_nans(False):
        episode(0, 3)
        t = time.perf_counter()
        episode(0, HORIZON)
        lost = loop - EPISODES * (time.perf_counter() - t)
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))
