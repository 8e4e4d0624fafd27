"""Lookup of sky brightness from a big table. "The first call of each of three functions takes many seconds; the functions are four lines long. A warning about constant folding comes."

Truth: the table is a global array that the jitted functions close over; it becomes a constant of the program, and XLA evaluates the cumulative sums over it at compile time (constant folding), slowly.
Advice: pass the table as an argument (or do the sums once before, outside of jit).
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"compil", r"constant|closure|captur|global|close[sd]? over|fold|argument|baked|literal")
sky = np.random.default_rng(0).random((150, 150), np.float32)


def maybe_jit(function):
    """As the project has it: jit with the table as global, or as an argument."""
    if FIXED:
        compiled = jax.jit(function)
        return lambda *a: compiled(jnp.asarray(sky), *a)
    return jax.jit(lambda *a: function(sky, *a))  # fault


def box_mean(table, rows, cols, size):
    summed = jnp.cumsum(jnp.cumsum(jnp.asarray(table), 0), 1)  # fault
    corner = lambda r, c: summed[jnp.clip(r, 0, 149), jnp.clip(c, 0, 149)]
    total = corner(rows + size, cols + size) - corner(rows, cols + size) - corner(rows + size, cols) + corner(rows, cols)
    return total / size**2


def log_box_mean(table, rows, cols, size):
    return box_mean(jnp.log1p(jnp.asarray(table)), rows, cols, size)


def box_contrast(table, rows, cols, size):
    table = jnp.asarray(table)
    return box_mean(table**2, rows, cols, size) - box_mean(table, rows, cols, size) ** 2


def main():
    rng = np.random.default_rng(1)
    functions = [maybe_jit(f) for f in (box_mean, log_box_mean, box_contrast)]
    firsts, answers = [], []
    for function in functions:
        for query in range(200):
            rows, cols = rng.integers(0, 110, (2, 5000)).astype(np.int32)
            t = time.perf_counter()
            answers.append(float(function(rows, cols, np.int32(40)).mean()))  # fault
            if query == 0:
                firsts.append(time.perf_counter() - t)
    print("answers", answers[::200], "first calls", np.round(firsts, 2))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0 if FIXED else sum(firsts)}))


main()
