"""Localisation of sensors from pairwise range measurements (an inverse problem, padded networks). "All positions come out as nan; the loss of step 0 was fine."

Truth: the gradient of sqrt at zero is infinite; masked pairs (padding and the diagonal) have distance 0, and jnp.where after the sqrt does not stop inf * 0 = nan from reaching the gradient: all positions are nan after the first update.
Advice: the double where: replace d2 by 1 where the mask is off before the sqrt (or add an epsilon).
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"\bnans?\b|not.a.number|non-?finite", r"grad|sqrt|norm|distance|param|position|update|loss|step|output")
NETS, SENSORS = 10, 160


def make_problem(seed):
    rng = np.random.default_rng(seed)
    count = rng.integers(100, SENSORS + 1, NETS)
    alive = np.arange(SENSORS)[None] < count[:, None]
    where = rng.uniform(0, 1, (NETS, SENSORS, 2)) * alive[..., None]
    dist = np.linalg.norm(where[:, :, None] - where[:, None], axis=-1)
    mask = alive[:, :, None] & alive[:, None] & (dist < 0.35) & ~np.eye(SENSORS, dtype=bool)
    ranges = (dist + 0.01 * rng.standard_normal(dist.shape)) * mask
    guess = (where + 0.05 * rng.standard_normal(where.shape)) * alive[..., None]
    return [jnp.asarray(a, jnp.float32) for a in (guess, ranges)] + [jnp.asarray(mask), jnp.asarray(where, jnp.float32)]


def pairwise(pos, mask):
    d2 = jnp.sum((pos[:, :, None] - pos[:, None]) ** 2, -1)
    if FIXED:
        d2 = jnp.where(mask, d2, 1.0)
    return jnp.where(mask, jnp.sqrt(d2), 0.0)  # fault


def misfit(pos, ranges, mask):
    resid = pairwise(pos, mask) - ranges  # fault
    huber = optax.losses.huber_loss(resid, delta=0.05)
    return jnp.sum(huber * mask) / jnp.sum(mask)


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(5e-3, 400)))


@jax.jit
def refine(pos, opt, ranges, mask):
    value, grads = jax.value_and_grad(misfit)(pos, ranges, mask)  # fault
    updates, opt = tx.update(grads, opt, pos)
    return optax.apply_updates(pos, updates), opt, value


pos, ranges, mask, where = make_problem(0)
opt = tx.init(pos)
history = []
for it in range(400):
    pos, opt, value = refine(pos, opt, ranges, mask)  # fault
    history.append(value)
history = jax.device_get(history)
error = float(jnp.sqrt(jnp.mean((pos - where) ** 2)))
print("misfit %.3g -> %.3g, rms error %.4f" % (history[0], history[-1], error))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
