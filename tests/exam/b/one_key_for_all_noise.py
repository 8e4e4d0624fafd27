"""Training with differential privacy. An audit of the gradients finds that the privacy noise of layers with the same shape
is identical, and that it repeats itself from step to step; the claimed privacy does not hold.

Truth: one PRNG key draws the noise of every parameter and at every step; equal shapes get equal numbers.
Advice: split the key once per step and once per leaf (`jax.random.split`, `fold_in(key, step)`); run with `jax.debug_key_reuse(True)` in tests.

Source: jax-ml/jax#3646.
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"key|prng|rng|random|seed", r"reus|same|split|identical|twice|repeat|again|fold_in|correlat")
LAYERS, WIDTH, BATCH, STEPS, CLIP, SIGMA = 4, 64, 128, 260, 1.0, 0.6


def predict(params, x):
    for layer in params["hidden"]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ params["out"]


def example_loss(params, x, y):
    return (predict(params, x)[0] - y) ** 2


def clipped_gradient(params, x, y):
    grads = jax.grad(example_loss)(params, x, y)
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
    return jax.tree.map(lambda g: g / jnp.maximum(1.0, norm / CLIP), grads)


@jax.jit
def private_gradient(params, x, y):
    summed = jax.tree.map(lambda g: g.sum(0), jax.vmap(clipped_gradient, (None, 0, 0))(params, x, y))
    return summed


def noise_for(tree, key):
    leaves, structure = jax.tree.flatten(tree)
    if FIXED:
        keys = jax.random.split(key, len(leaves))
    else:
        keys = [key] * len(leaves)  # fault
    drawn = [SIGMA * CLIP * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves)]  # fault
    return jax.tree.unflatten(structure, drawn)


@jax.jit
def apply(params, summed, noise):
    return jax.tree.map(lambda p, g, n: p - 0.05 * (g + n) / BATCH, params, summed, noise)


root = jax.random.key(0)
init = jax.random.split(jax.random.key(1), LAYERS + 1)
params = {
    "hidden": [{"w": jax.random.normal(k, (WIDTH, WIDTH)) / WIDTH**0.5, "b": jnp.zeros(WIDTH)} for k in init[:-1]],
    "out": jax.random.normal(init[-1], (WIDTH, 1)) / WIDTH**0.5,
}
rng = np.random.default_rng(0)
same = 0
for step in range(STEPS):
    x = rng.normal(size=(BATCH, WIDTH)).astype(np.float32)
    y = np.sin(x[:, 0]) + 0.1 * x[:, 1]
    summed = private_gradient(params, x, y)
    key = jax.random.fold_in(root, step) if FIXED else root  # fault
    noise = noise_for(params, key)
    same += int(np.array_equal(noise["hidden"][0]["w"], noise["hidden"][1]["w"]))
    params = apply(params, summed, noise)
error = float(jnp.mean((predict(params, x)[:, 0] - y) ** 2))
print(f"error {error:.3f}; steps in which two layers got the same noise: {same} of {STEPS}")
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": None if not FIXED else 0.0}))
