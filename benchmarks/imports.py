"""
What starting costs: ``import jaxmon``, and ``jaxmon.instrument()`` after JAX.

Whole processes, with and without, in turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from functools import partial

from benchmarks.rows import Row, added, seconds, taken


ROUNDS = 41
STARTS = 7
GOAL_MS = 15.0
GOAL_PERCENT = 5.0
GOAL_MB = 3.0
SECONDS = 60

INSTRUMENT = """
import os, sys, time

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

began = time.process_time()
import jax
theirs = time.process_time() - began
modules, before, began = len(sys.modules), resident(), time.process_time()
import jaxmon
agent = jaxmon.instrument(port=0, socket=False)
ours = time.process_time() - began
size, modules = resident() - before, len(sys.modules) - modules
agent.collect()
page = resident() - before
print(ours * 1e3, ours / theirs * 100, modules, size / 1e6, page / 1e6)
jaxmon.uninstrument()
"""


def measure() -> list[Row]:
    """Return milliseconds of imports, and milliseconds and megabytes of an agent."""
    bare: list[float] = []
    ours: list[float] = []
    for _ in range(ROUNDS):
        for found, program in ((bare, "pass"), (ours, "import jaxmon")):
            found.append(1e3 * seconds(partial(_python, "-c", program), 1)[0])
    starts = [
        tuple(map(float, _python("-c", INSTRUMENT).stdout.split()))
        for _ in range(STARTS)
    ]
    times, shares, modules, sizes, pages = zip(*starts, strict=True)
    return [
        taken("python -c pass", bare, "ms"),
        added(
            "  added by import jaxmon",
            "ms",
            ours,
            bare,
            at_most=GOAL_MS,
            note="most in: " + ", ".join(_slowest()),
        ),
        taken("jaxmon.instrument() after import jax, CPU", times, "ms"),
        taken("  of what import jax takes", shares, "%", at_most=GOAL_PERCENT),
        Row("  modules loaded", statistics.median(modules), ""),
        taken("  resident memory added", sizes, "MB", at_most=GOAL_MB),
        taken("  the same with the first page", pages, "MB"),
    ]


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
    # As programs run: with byte code that an earlier run has left.
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
