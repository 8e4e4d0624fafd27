"""
What `jaxmon run` adds to a script of some six seconds: processor time of the process
from its start to its end, whole processes with and without, in turns.

What it adds to a script of this length is by parts: until its first line, the import of
JAX, its work, and its exit. The processor time of jaxmon's threads is exact, and grows
with the wall time: on a busy machine, the same work takes longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.rows import Row, paired, taken


ROUNDS = 15
GOAL_PERCENT = 3.0

PROGRAM = """
import json, os, sys, time
moments = [time.process_time()]
import jax
import jax.numpy as jnp
import numpy as np
moments.append(time.process_time())

@jax.jit
def step(params, x, y):
    def loss_of(params):
        h = x
        for w, b in params:
            h = jnp.tanh(h @ w + b)
        return jnp.mean((h - y) ** 2)
    loss, slopes = jax.value_and_grad(loss_of)(params)
    return jax.tree.map(lambda p, s: p - 0.01 * s, params, slopes), loss

keys = jax.random.split(jax.random.key(0), 6)
params = [(jax.random.normal(k, (256, 256)) / 16, jnp.zeros(256)) for k in keys]
numbers = np.random.default_rng(0)
for count in range(1_000):
    x = numbers.standard_normal((256, 256)).astype(np.float32)
    params, loss = step(params, x, np.roll(x, 1, axis=1))
    if count % 10 == 0:
        float(loss)
moments.append(time.process_time())
threads = 0.0
if "jaxmon" in sys.modules:
    from jaxmon.threads import running
    clocks = [time.pthread_getcpuclockid(of.ident) for of in running() if of.ident]
    threads = sum(map(time.clock_gettime, clocks))
print(json.dumps([moments, threads]))
"""
PARTS = ("until its first line", "import of JAX", "its work", "its exit")


class Spent(NamedTuple):
    """Processor seconds of a process, by `PARTS`, and those of jaxmon's threads."""

    parts: tuple[float, ...]
    threads: float


def measure() -> list[Row]:
    """Return what is added, as a share of the script, and by parts."""
    bare: list[Spent] = []
    ours: list[Spent] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as kept:
        script = Path(kept, "script.py")
        script.write_text(PROGRAM)
        for number in range(ROUNDS + 1):
            pair = [
                (bare, _spent(str(script), run_dir=kept)),
                (ours, _spent("-m", "jaxmon", "run", str(script), run_dir=kept)),
            ]
            for found, spent in pair if number else ():  # the first loads all files
                found.append(spent)
    scripts = [sum(of.parts) for of in bare]
    whole = paired([sum(of.parts) for of in ours], scripts) / median(scripts) * 100
    threads = [of.threads for of in ours]
    return [
        taken("script, processor time", scripts, "s"),
        Row("  added by jaxmon run", whole, "%", at_most=GOAL_PERCENT),
        *(
            Row(
                f"  … {name}",
                paired([of.parts[at] for of in ours], [of.parts[at] for of in bare])
                * 1e3,
                "ms",
            )
            for at, name in enumerate(PARTS)
        ),
        taken("  … of its work, by threads of ours", threads, "ms", scale=1e3),
    ]


def _spent(*words: str, run_dir: str) -> Spent:
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "JAXMON_RUN_DIR": run_dir}
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [sys.executable, *words], env=environ, stdout=printed
        )
        # By itself: other children are none of it.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        last = printed.read().splitlines()[-1]
    moments, threads = json.loads(last)
    ends = [0.0, *moments, used.ru_utime + used.ru_stime]
    return Spent(tuple([end - begin for begin, end in pairwise(ends)]), threads)
