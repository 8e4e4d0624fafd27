"""Lennard-Jones molecular dynamics, forces by autodiff. "The energy is fine at the start and then everything is nan."

Truth: the distance matrix has zeros on its diagonal; sqrt's gradient there is inf, and where() multiplies it by 0, which is NaN: all forces are NaN.
Advice: put a safe value in before the sqrt (the double where), e.g. d2 = where(eye, 1.0, d2), or work with d2 alone.
"""
import time
T0 = time.perf_counter()
import json
import sys
import jax
import jax.numpy as jnp

FIXED = "--fixed" in sys.argv
WORDS = (r"\bnans?\b|non-?finite|not finite|not a number",)
SIDE, DT, CHUNK, CHUNKS = 22, 0.002, 100, 36
BOX = SIDE * 1.2


def energy(pos):
    d = pos[:, None, :] - pos[None, :, :]
    d = d - BOX * jnp.round(d / BOX)
    d2 = jnp.sum(d * d, -1)
    self_pair = jnp.eye(pos.shape[0], dtype=bool)
    if FIXED:
        d2 = jnp.where(self_pair, 1.0, d2)
    r = jnp.sqrt(d2)  # fault
    s6 = (1.0 / r) ** 6  # fault
    pair = jnp.where(self_pair | (r > 3.0), 0.0, 4.0 * (s6 * s6 - s6))  # fault
    return 0.5 * jnp.sum(pair)


def force(pos):
    return -jax.grad(energy)(pos)  # fault


@jax.jit
def simulate(pos, vel):
    def step(carry, _):
        pos, vel, f = carry
        vel = vel + 0.5 * DT * f
        pos = (pos + DT * vel) % BOX
        f = force(pos)
        vel = vel + 0.5 * DT * f
        return (pos, vel, f), None
    (pos, vel, _), _ = jax.lax.scan(step, (pos, vel, force(pos)), None, length=CHUNK)
    return pos, vel, energy(pos), 0.5 * jnp.sum(vel * vel)


def lattice():
    g = jnp.arange(SIDE) * 1.2 + 0.6
    return jnp.stack(jnp.meshgrid(g, g), -1).reshape(-1, 2)


pos = lattice()
vel = 0.5 * jax.random.normal(jax.random.key(0), pos.shape)
vel = vel - vel.mean(0)
print("atoms", pos.shape[0], "energy at start", float(jax.jit(energy)(pos)), flush=True)
for chunk in range(CHUNKS):
    pos, vel, pot, kin = simulate(pos, vel)  # fault
    if chunk % 12 == 11:
        print((chunk + 1) * CHUNK, "potential", float(pot), "kinetic", float(kin), flush=True)  # fault
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
