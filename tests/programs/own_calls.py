"""
Counts what jaxmon does for each event of a program, without a clock: calls of its
Python functions on the program's thread, calls of other functions by these, and how
many modules of jaxmon an event passes.

Prints the mean of an event as JSON, and what a start loads, starts and allocates.
"""

import functools
import gc
import importlib
import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def tasks() -> int:
    """Return the number of threads, whoever started them."""
    return len(list(Path("/proc/self/task").iterdir()))


double = jax.jit(lambda x: x * 2)
double(1.0)  # the runtime has its threads
gc.collect()
modules, threads, blocks = set(sys.modules), tasks(), sys.getallocatedblocks()

# What the agent's threads load and allocate a moment later is not part of the start.
interval = sys.getswitchinterval()
sys.setswitchinterval(60)
jaxmon: Any = importlib.import_module("jaxmon")
agent = jaxmon.instrument(port=0, socket=False)
gc.collect()
loaded = sorted(one for one in set(sys.modules) - modules if "jaxmon" in one)
start = {
    "modules": len(loaded),
    "others": len(set(sys.modules) - modules) - len(loaded),
    "threads": tasks() - threads,
    "blocks": sys.getallocatedblocks() - blocks,
}
sys.setswitchinterval(interval)

allowance: Any = importlib.import_module("jaxmon.agent.guard")
OURS = str(Path(jaxmon.__file__).parent)
SAMPLE = f"{OURS}/agent/sampling/execution.py"
costs: dict[str, list[float]] = {}
passed: dict[str, int] = {}


def counted(name: str, events: Iterable[Callable[[], object]], *, after: int) -> None:
    """
    Count for all *events* but the first, which learn what recurs, and those that are
    timed as samples: when one is depends on the clock.
    """
    python = others = number = 0
    files: set[str] = set()

    def see(frame: Any, event: str, _: object) -> None:
        nonlocal python, others
        if frame.f_code.co_filename.startswith(OURS):
            files.add(frame.f_code.co_filename)
            python += event == "call"
            others += event == "c_call"

    for event in itertools.islice(events := iter(events), after):
        event()
    gc.disable()  # when it collects, and so reports to us, depends on what went before
    for event in events:
        files.clear()
        before = python, others
        sys.setprofile(see)
        event()
        sys.setprofile(None)
        if SAMPLE in files:
            python, others = before
            continue
        number += 1
        passed[name] = len(files)
    gc.enable()
    costs[name] = [python / number, others / number]


def page() -> dict[str, float]:
    return {s: v for family in agent.collect() for s, v in family.samples}


counting = jax.jit(lambda x: x + 1)
x, host = counting(1.0), np.ones(100, np.float32)


def put() -> object:
    return jax.device_put(host)


def read() -> object:
    return float(counting(x))


def sync() -> object:
    return x.block_until_ready()


def compile_of(function: Callable[[Any], object]) -> object:
    return jax.jit(function)(x)


def warn() -> object:
    return jnp.zeros(3, dtype="float64")


warnings.simplefilter("ignore")
counted("cached call", [lambda: counting(x)] * 50, after=20)
counted("device_put", [put] * 50, after=20)
counted("read", [read] * 50, after=20)
counted("sync", [sync] * 50, after=20)
counted("warning", [warn] * 50, after=20)
steps = iter(jaxmon.steps(itertools.count()))
counted("marked step", [steps.__next__] * 50, after=20)

source = "\n".join(f"def f{n}(x):\n    return x * {n}" for n in range(15))
functions: dict[str, Any] = {}
exec(compile(source, "small.py", "exec"), functions)  # noqa: S102 - of our own
counted(
    "small compile",
    [functools.partial(compile_of, functions[f"f{n}"]) for n in range(15)],
    after=5,
)

kept = {f"layer{n}": jax.device_put(np.ones(4, np.float32)) for n in range(1_499)}
trees = [{**kept, "last": jax.device_put(np.ones(n, np.float32))} for n in range(1, 25)]
last = jax.jit(lambda tree: tree["last"] * 2)
counted("recompile", [functools.partial(last, tree) for tree in trees], after=20)

# An analysis on a thread of ours, here on this one.
flops: Any = importlib.import_module("jaxmon.agent.jaxlink.flops")
finder: Any = importlib.import_module("jaxmon.agent.jaxlink.source_lines")
lines = finder.SourceLineFinder(jax)
jaxpr = jax.make_jaxpr(lambda x: [x.sum() + n for n in range(500)])(jnp.ones(3)).jaxpr
counted(
    "FLOPs of 1,000 equations", [lambda: flops.count(jax, jaxpr, lines)] * 2, after=1
)

# As many as a loop makes: all counted but for the latest, and those of one size
# exactly in proportion.
before, total = page(), 5_000
for _ in range(total):
    jax.device_put(host)
    warn()
after = page()
TO_DEVICE = '{direction="host_to_device"}'
frequent = {
    name: after[name] - before[name]
    for name in (
        f"jaxmon_host_transfers_total{TO_DEVICE}",
        f"jaxmon_host_transfer_bytes_total{TO_DEVICE}",
        'jaxmon_jax_warnings_total{kind="dtype_unavailable"}',
    )
}

# In such a loop no time passes.
stopped = allowance.monotonic()
allowance.monotonic = lambda: stopped
for name, event in (("device_put", put), ("read", read), ("sync", sync)):
    counted(f"frequent {name}", [event] * 2_360, after=2_200)
counted("frequent warning", [warn] * 460, after=300)

sys.stdout.write(
    json.dumps(
        {
            "start": start,
            "costs": costs,
            "passed": passed,
            "frequent": [total, *frequent.values()],
            "size": host.nbytes,
        }
    )
)
jaxmon.uninstrument()
