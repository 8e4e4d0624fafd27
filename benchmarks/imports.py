"""
What starting costs: ``import jaxmon``, and ``jaxmon.instrument()`` after JAX.

Whole processes, with and without, in turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from time import perf_counter

from benchmarks.rows import Row, paired


ROUNDS = 41
STARTS = 7
GOAL_MS = 15.0
SECONDS = 60

INSTRUMENT = """
import os, time
import jax, jaxmon

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

jax.numpy.ones(3).block_until_ready()
before, started = resident(), time.perf_counter()
agent = jaxmon.instrument(port=0, socket=False)
spent = time.perf_counter() - started
agent.collect()
print(spent * 1e3, (resident() - before) / 1e6)
jaxmon.uninstrument()
"""


def measure() -> list[Row]:
    """Return milliseconds of imports, and milliseconds and megabytes of an agent."""
    bare, ours = [], []
    for _ in range(ROUNDS):
        bare.append(_milliseconds("pass"))
        ours.append(_milliseconds("import jaxmon"))
    agents = [
        tuple(map(float, _python("-c", INSTRUMENT).stdout.split()))
        for _ in range(STARTS)
    ]
    times, sizes = zip(*agents, strict=True)
    return [
        Row(
            name="python -c pass",
            value=statistics.median(bare),
            best=min(bare),
            unit="ms",
        ),
        Row(
            name="  added by import jaxmon",
            value=paired(ours, bare),
            best=min(ours) - min(bare),
            unit="ms",
            at_most=GOAL_MS,
            note="most in: " + ", ".join(_slowest()),
        ),
        Row(
            name="jaxmon.instrument() after import jax",
            value=statistics.median(times),
            best=min(times),
            unit="ms",
        ),
        Row(
            name="  resident memory added, first page included",
            value=statistics.median(sizes),
            best=min(sizes),
            unit="MB",
        ),
    ]


def _milliseconds(program: str) -> float:
    started = perf_counter()
    _python("-c", program)
    return (perf_counter() - started) * 1e3


def _slowest() -> list[str]:
    """Return the modules that ``import jaxmon`` loads and spends most in itself."""
    known = {name for name, _ in _import_times("pass")}
    loaded = [item for item in _import_times("import jaxmon") if item[0] not in known]
    loaded.sort(key=lambda item: -item[1])
    return [f"{name} {spent / 1e3:.1f} ms" for name, spent in loaded[:4]]


def _import_times(program: str) -> list[tuple[str, int]]:
    """Return modules and the microseconds in each alone, from ``-X importtime``."""
    lines = _python("-X", "importtime", "-c", program).stderr.splitlines()
    fields = [line.partition("import time:")[2].split("|") for line in lines]
    return [(f[2].strip(), int(f[0])) for f in fields[1:] if len(f) == 3]


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
