"""A Lennard-Jones fluid with velocity Verlet in a periodic box; energies are written once per block of steps.

Structure: jax-md/jax-md notebooks (energy function, force by grad, inner fori_loop of steps, outer Python loop that logs).
"""
import json
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np

SIDE, DT, INNER, BLOCKS = 6, 0.004, 100, 14
COUNT, BOX = SIDE**3, SIDE * 1.15


def energy(positions):
    shift = positions[:, None] - positions[None]
    shift = shift - BOX * jnp.round(shift / BOX)
    r2 = jnp.sum(shift**2, -1) + jnp.eye(COUNT) * 1e6
    inv6 = jnp.where(r2 < 2.5**2, r2, 1e6) ** -3
    return 2.0 * jnp.sum(inv6**2 - inv6)


force = lambda x: -jax.grad(energy)(x)


@jax.jit
def block(state):
    def step(_, s):
        x, v, f = s
        v = v + 0.5 * DT * f
        x = (x + DT * v) % BOX
        f = force(x)
        return x, v + 0.5 * DT * f, f

    x, v, f = jax.lax.fori_loop(0, INNER, step, state)
    kinetic = 0.5 * jnp.sum(v**2)
    return (x, v, f), (energy(x), kinetic)


grid = np.stack(np.meshgrid(*[np.arange(SIDE)] * 3), -1).reshape(-1, 3) * (BOX / SIDE)
positions = jnp.asarray(grid, jnp.float32)
velocity = 0.8 * jax.random.normal(jax.random.key(0), positions.shape)
state = (positions, velocity - velocity.mean(0), jax.jit(force)(positions))
history = []
for number in range(BLOCKS):
    state, energies = block(state)
    history.append(energies)
history = np.array(jax.device_get(history))
total = history.sum(1)
print("temperature", round(float(2 * history[-1, 1] / (3 * COUNT)), 3), "drift of the energy", round(float(np.ptp(total) / abs(total.mean())), 5))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
