"""
A model that takes seconds to compile, and does so again for other sizes.

Arguments: the sizes, in turn; how long a compile takes; and how long the program runs.
``--fixed`` pads to the largest size.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


WORDS = ("model was recompiled (once|twice|3 times) because", "argument's shape")

sizes = [int(size) for size in sys.argv[1].split(",")]
compiling, seconds = float(sys.argv[2]), float(sys.argv[3])
weights = jnp.ones((32, 32))


@jax.jit  # type: ignore[untyped-decorator]
def model(weights: Any, batch: Any) -> Any:
    time.sleep(compiling)  # as hundreds of layers would take to trace
    return jnp.sum(jnp.tanh(batch @ weights))


began, lost = time.perf_counter(), 0.0
for number, size in enumerate(sizes):
    rows = max(sizes) if "--fixed" in sys.argv else size
    batch = np.zeros((rows, 32), np.float32)
    batch[:size] = 1.0
    until = began + seconds * (number + 1) / len(sizes)
    first = time.perf_counter()
    model(weights, batch).block_until_ready()  # fault
    lost += time.perf_counter() - first if number else 0.0
    while time.perf_counter() < until:
        model(weights, batch).block_until_ready()
print(json.dumps({"lost": lost}))
