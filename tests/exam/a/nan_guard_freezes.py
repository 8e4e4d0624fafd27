"""Learning a 2-D embedding from distances: the loss falls quickly at first, then stands exactly still from the second phase on. No NaN is ever printed, and a lower or higher learning rate changes nothing.

Truth: as soon as pairs (i, i) are drawn the gradient of sqrt at zero is NaN (the jnp.where does not protect the backward pass); optax.apply_if_finite silently drops every update since then, so the parameters are frozen.
Advice: make the sqrt safe on the inside (double where, or add an epsilon) and watch notfinite_count / alarm on skipped updates.
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
WORDS = (r"nan|non-?finite|not finite|inf\b", r"grad|sqrt|update|skip|frozen|unchanged|apply_if_finite")
POINTS, PAIRS, STEPS, PHASE_TWO = 4000, 60000, 900, 300

tx = optax.apply_if_finite(optax.adam(2e-2), max_consecutive_errors=100_000)  # fault


def distance(a, b):
    squared = jnp.sum((a - b) ** 2, axis=-1)
    if FIXED:
        safe = jnp.where(squared > 0, squared, 1.0)
        return jnp.where(squared > 0, jnp.sqrt(safe), 0.0)
    return jnp.where(squared > 0, jnp.sqrt(squared), 0.0)  # fault


@jax.jit
def train_step(points, opt, left, right, target):
    def loss_fn(p):
        return jnp.mean((distance(p[left], p[right]) - target) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(points)
    updates, opt = tx.update(grads, opt, points)  # fault
    return optax.apply_updates(points, updates), opt, loss


def sample_pairs(rng, step):
    left = rng.integers(POINTS, size=PAIRS)
    if step < PHASE_TWO:  # phase one: neighbours on the ring; phase two: any pair
        right = (left + rng.integers(1, 50, size=PAIRS)) % POINTS
    else:
        right = rng.integers(POINTS, size=PAIRS)
    return left, right


rng = np.random.default_rng(0)
angle = np.linspace(0, 2 * np.pi, POINTS, endpoint=False)
truth = np.stack([np.cos(angle), np.sin(angle)], axis=1) * 3
points = jnp.asarray(rng.standard_normal((POINTS, 2)), jnp.float32)
opt = tx.init(points)
for step in range(STEPS):
    left, right = sample_pairs(rng, step)
    target = np.linalg.norm(truth[left] - truth[right], axis=1).astype(np.float32)
    points, opt, loss = train_step(points, opt, left, right, target)
    if step % 100 == 99:
        print(f"step {step + 1}: loss {float(loss):.4f}")
print("updates dropped:", int(opt.total_notfinite), file=sys.stderr)
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0 if FIXED else None}))
